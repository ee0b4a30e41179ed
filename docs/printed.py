"""Writes docs/papers/printed.md: what the printed numbers of the papers' tables can decide by themselves.

    python -m docs.printed                  # the page
    python -m docs.printed --all FILE.csv   # every comparison

The numbers are the cells' `printed` and `deviations` in configs/studies, at scale `paper`.
"""

import argparse
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from scipy.special import stdtrit

from docs.papers import FOLDER
from mvcl import studies
from mvcl.studies import Above, Claim, Study, Trend, Within
from mvcl.studies._claims import named

PAGE = FOLDER / "printed.md"
_LEAST = 0.05  # a deviation that is printed as 0.0 is below this
_BY_RUNS = ("xu_table2",)  # released, metric.py: np.std divides by the number of runs
_EXACT = ("jeon_table2", "shidani_variance")  # the values of formulas
_MOST = 10_000
_RULES = (Above, Trend, Within)
_HEAD = """# What the printed numbers decide

Each claim of a study with printed values, decided by nothing but these values: no run of ours is in this page. Made by
`python -m docs.printed`; `--all FILE.csv` writes every comparison.

A *margin* is by how much two printed means, or the gains of two rows, fulfil the claim; of a claim that a value lies in
a range it is the distance to the nearer end. It is negative where the paper's own numbers are against its text. Of a
trend it is the difference of the last and the first value. The interval of a margin, at 95%, is

- Welch's, where the table prints standard deviations and the paper its number of runs n: t(0.975, ν) √(Σ s²/n), ν =
  (Σ s²/n)² / Σ ((s²/n)² / (n - 1)). A deviation printed as 0.0 is taken as 0.05. The deviations of Xu 2023 are
  multiplied by √(10/9): the released code divides by the number of runs;
- otherwise that of the noise which the table shows of itself, where it prints one configuration twice: s² is the mean
  of d²/2 over the differences d of such pairs, with one degree of freedom a pair, and the interval of a difference of
  two single runs is t s √2;
- otherwise unknown, "-".

*Seeds* is the least number of runs of each cell with which four of five repetitions of the experiment have an interval
without 0, if the margin is the true one: (t(0.975, ν) + t(0.8, ν)) √(Σ s²/n) ≤ |margin|. Runs are independent; pairing
by seed, as the studies here do, needs fewer.
"""


class Comparison(NamedTuple):
    """A margin of a claim with its interval (None: unknown), and the runs that would decide it."""

    margin: float
    low: float | None
    high: float | None
    seeds: float | None
    cells: str


def welch(value: float, deviations: Sequence[float], runs: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of a sum or difference of means of `runs` values each, of these standard deviations."""
    parts = [s**2 / runs for s in deviations]
    degrees = sum(parts) ** 2 / sum(v**2 / (runs - 1) for v in parts)
    half = float(stdtrit(degrees, 0.5 + level / 2)) * math.sqrt(sum(parts))
    return value - half, value + half


def seeds(margin: float, deviations: Sequence[float], power: float = 0.8) -> float:
    """Least number of runs of each cell, so that a share `power` of experiments has a 95% interval without 0."""
    squares = [s**2 for s in deviations]
    ratio = sum(squares) ** 2 / sum(s**2 for s in squares)
    for n in range(2, _MOST):
        t = stdtrit((n - 1) * ratio, 0.975) + stdtrit((n - 1) * ratio, power)
        if t * math.sqrt(sum(squares) / n) <= abs(margin):
            return n
    return math.inf


def _margin(claim: Claim, values: Sequence[float]) -> float:
    value = values[0] if len(values) == 1 else values[0] - values[1]
    if len(values) == 4:
        value = (values[1] - values[0]) - (values[3] - values[2])
    if isinstance(claim, Within):
        return min(value - claim.low, claim.high - value)
    return -value if isinstance(claim, Trend) and not claim.rises else value


def compared(name: str, study: Study, claim: Claim) -> Iterator[Comparison]:
    """The comparisons of a claim, where all values are printed."""
    for cells, *_ in claim.about(study):
        if any(claim.measure not in cell.printed for cell in cells):
            continue
        margin = _margin(claim, [cell.printed[claim.measure] for cell in cells])
        about, runs, noise = named(*cells), study.printed_runs, study.noise.get(claim.measure)
        if runs > 1 and all(claim.measure in cell.deviations for cell in cells):
            scale = math.sqrt(runs / (runs - 1)) if name in _BY_RUNS else 1.0
            spread = [scale * max(cell.deviations[claim.measure], _LEAST) for cell in cells]
            yield Comparison(margin, *welch(margin, spread, runs), seeds(margin, spread), about)
        elif noise:
            half = float(stdtrit(noise.degrees, 0.975)) * noise.deviation * math.sqrt(len(cells))
            spread = [noise.deviation] * len(cells)
            yield Comparison(margin, margin - half, margin + half, seeds(margin, spread), about)
        else:
            yield Comparison(margin, None, None, None, about)


def of_papers() -> dict[str, Study]:
    """Name -> study at scale paper, with the rows that are only printed among its cells."""
    files = {file.stem: studies.scales(file) for file in studies.study_files()}
    found = {
        name: studies.without_data(of["paper"])
        for name, of in files.items()
        if "paper" in of and name not in _EXACT
    }
    return {
        name: dataclasses.replace(study, cells=[*study.cells, *study.printed_only], printed_only=())
        for name, study in found.items()
    }


def comparisons(of: Mapping[str, Study]) -> pd.DataFrame:
    """A row for each comparison of each claim."""
    rows: list[dict[str, Any]] = []
    for name, study in of.items():
        labels = {measure.name: measure.label or measure.name for measure in study.measures}
        for number, claim in enumerate(study.claims):
            for one in compared(name, study, claim) if isinstance(claim, _RULES) else ():
                about = {
                    "claim": claim.text,
                    "source": claim.source,
                    "measure": labels[claim.measure],
                    "by": claim.measure,
                }
                rows.append({"study": name, "number": number, **about, **one._asdict()})
    return pd.DataFrame(rows)


def _statistics(study: Study) -> str:
    """What the table prints, and what it shows of its noise, in a sentence each."""
    known = [bool(cell.deviations) for cell in study.cells if cell.printed]
    deviations = "means and standard deviations" if all(known) else "means, some with standard deviations,"
    runs = f"of {study.printed_runs} run{'s' * (study.printed_runs > 1)}" if study.printed_runs else ""
    text = f"Printed: {deviations if any(known) else 'means'} {runs}".rstrip()
    text += "." if runs else "; the paper does not say of how many runs."
    sources: dict[str, list[str]] = {}
    for measure, noise in study.noise.items():
        sources.setdefault(noise.source, []).append(f"{measure} {noise.deviation:.2f}")
    return text + "".join(f" Noise of one run: {', '.join(of)}; {source}." for source, of in sources.items())


def page() -> str:
    """The Markdown of the page."""
    found, parts, without = of_papers(), [_HEAD], []
    every = comparisons(found)
    for name, study in found.items():
        of_study = every[every["study"] == name]
        if of_study.empty:
            without.append(f"`{name}`")
            continue
        head = ["claim", "source", "measure", "comparisons", "margin below 0", "0 in the interval"]
        head += ["least margin", "seeds", "of"]
        lines = [head, ["---"] * 3 + ["---:"] * 5 + ["---"]]
        for _, of in of_study.groupby("number"):
            known, first = of["low"].notna(), of.iloc[0]
            least = of.loc[(of["low"] if known.any() else of["margin"]).idxmin()]
            inside = ((of["low"] <= 0) & (of["high"] >= 0)).sum() if known.any() else "-"
            digits = max(2, next(m.digits for m in study.measures if m.name == of["by"].iloc[0]))
            margin = f"{least['margin']:+.{digits}f}"
            if known.any():
                margin += f" [{least['low']:.{digits}f}, {least['high']:.{digits}f}]"
            count = (
                "-"
                if pd.isna(least["seeds"])
                else "-"
                if least["seeds"] == math.inf
                else f"{least['seeds']:.0f}"
            )
            text = [
                first["claim"],
                first["source"],
                first["measure"],
                len(of),
                (of["margin"] < -1e-9).sum(),
                inside,
            ]
            lines.append([*text, margin, count, least["cells"]])
        table = "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
        parts += [f"## {study.title}\n\n`mvcl study {name} --scale paper`. {_statistics(study)}\n\n{table}\n"]
    exact = " and ".join(f"`{name}`" for name in _EXACT)
    text = f"No claim compares printed values in {', '.join(without)}; {exact} have values of formulas."
    parts.append(f"## Without\n\n{text}\n")
    return "\n".join(parts)


def main(arguments: Sequence[str] = ()) -> None:
    """Write the page, or the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, help="write every comparison to this file instead")
    options = parser.parse_args(arguments)
    if options.all is not None:
        comparisons(of_papers()).drop(columns=["number", "by"]).to_csv(options.all, index=False)
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
