"""The numbers of a study from the records of its cells, what they say of its claims, and the files of both.

`compare` makes a study of one's own of objectives side by side.
"""

import dataclasses
import itertools
import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mvcl import _files, _progress, losses, metrics
from mvcl.studies import _page, _run
from mvcl.studies._claims import difference
from mvcl.studies._grid import (
    Baseline,
    Cell,
    Found,
    Measure,
    Opened,
    Study,
    Values,
    chosen,
    claimed,
    partner,
    trained,
)
from mvcl.training import BASELINES, Config

_COPIED = ("about", "unequal", "cost", "seeds", "columns", "along", "reference")


def run_study(opened: Opened, folder: Path, options: _run.Options) -> tuple[Path, int]:
    """Run what is missing or has failed, and write the page; after an interruption too, of what there is.

    Returns the page, and the number of the runs asked for that failed or are missing. `ValueError` if none of the data
    that are needed here can be opened.
    """
    if options.slurm is None:  # whose machines may see other disks
        _run.check_data(opened.study, folder, options)
    try:
        if options.slurm is not None or options.jobs > 1:
            _run.in_processes(opened, folder, options)
        else:
            _run.run(opened.study, folder, again=options.again, only=options.only)
    finally:
        with _progress.during("writing the page"):
            content = numbers(opened, folder, options.only)
            page = write(content, folder, opened.name)
            if options.write is not None:
                write(content, options.write, f"{opened.name}_{opened.scale}")
                if wide := _page.half_widths(content, wide=True):
                    _progress.line(f"warning: half-widths above the margin: {'; '.join(wide)}")
    asked = [cell for cell in content["cells"] if cell["name"] in chosen(opened.study, options.only)]
    return page, sum(s in ("failed", "missing") for cell in asked for s in cell["status"].values())


def numbers(opened: Opened, folder: Path, only: str = "") -> dict[str, Any]:
    """All that a page says, of plain types and in the unit of the table, from the cells in a folder.

    With `only` the claims are those about the `chosen` cells alone, and so are the comparisons that share 95%.
    """
    study = opened.study
    every = [(place, _run.look(place)) for place in _run.places(study, folder)]
    looks = [every[i : i + study.seeds] for i in range(0, len(every), study.seeds)]  # of each cell
    # seed -> values of each cell; networks that were trained side by side count as further seeds
    values = [
        {
            place.seed + study.seeds * network: {name: float(x) for name, x in row.items() if x is not None}
            for place, look in of_cell
            for network, row in enumerate(look.record.get("values", ()))
        }
        for of_cell in looks
    ]
    found = Found(study, values)
    given = opened.arguments
    # Cells with the same task share its runs.
    records = list({place.folder: look.record for place, look in every if look.record}.values())
    local = {"--only", "--workdir", "--write", "--jobs"}
    words = [a for before, a in zip(("", *given), given) if not local & {before, a.partition("=")[0]}]
    versions = records[-1]["versions"] if records else ()
    baselines = {m.name: _baselines(found, m) for m in study.measures}
    content = {
        "name": opened.name,
        "scale": opened.scale,
        "title": f"{study.title} (smoke: random data, no result)" if opened.scale == "smoke" else study.title,
        **{name: getattr(study, name) for name in _COPIED},
        **{name: list(getattr(study, name)) for name in ("against", "maps")},
        # Where files lie is of no use to readers, and the page has all cells.
        "command": shlex.join(["mvcl", "study", *(a.rpartition("/")[2] for a in words)]),
        "commit": _union(", ", (record["commit"] for record in records)),
        "machine": _union("; ", (record["machine"] for record in records)),
        "versions": {n: _union(", ", (record["versions"][n] for record in records)) for n in versions},
        "date": max((record["date"] for record in records), default=""),
        "taken": dict(Counter(record["page"] for record in records if "page" in record)),
        "seconds": round(sum(record.get("seconds", 0.0) for record in records)),
        "factors": list(study.cells[0].factors),
        "measures": [dataclasses.asdict(m) | {"label": m.label or m.name} for m in study.measures],
        "cells": [
            _cell(found, cell, of_cell)
            | {"separates": {m: of[0][i] for m, of in baselines.items()}, "at_chance": _at_chance(values[i])}
            for i, (cell, of_cell) in enumerate(zip(study.cells, looks))
        ],
        "printed_only": [{"factors": dict(cell.factors), **_printed(cell)} for cell in study.printed_only],
        "baselines": {
            r: of for r in BASELINES if (of := {m: b[1][r] for m, b in baselines.items() if r in b[1]})
        },
    }
    if opened.scale == "smoke":  # random data decide nothing
        study = dataclasses.replace(study, claims=())
    content["only"] = only
    return content | judged(study, content)


def _union(between: str, texts: Iterable[str]) -> str:
    """Each part once; the record of a run that was taken from a page has all parts of that page."""
    return between.join(sorted({part for text in texts for part in text.split(between)}))


def judged(study: Study, content: dict[str, Any]) -> dict[str, Any]:
    """What a page says of the claims, from the values on it: with `|` it replaces what older rules said."""
    study = claimed(study, content.get("only", ""))
    scale = {m.name: 100.0 if m.percent else 1.0 for m in study.measures}
    rows = {cell["name"]: cell["seeds"] for cell in content["cells"]}
    values = [
        {int(seed): {n: x / scale[n] for n, x in row.items()} for seed, row in rows[cell.name].items()}
        for cell in study.cells
    ]
    cells = {cell["name"]: names for cell in content["cells"] if (names := _not_trained(cell, study))}
    found = Found(study, values, cells)
    return {
        "comparisons": study.comparisons,
        "margins": {m.name: margin for m in study.measures if (margin := study.margin(m.name))},
        "why": {name: margin.reason for name, margin in study.margins.items()},
        "not_trained": cells,
        "claims": [
            {"text": claim.text, "source": claim.source, "measure": claim.measure, "rule": claim.rule}
            | claim.judge(found)._asdict()
            for claim in study.claims
        ],
    }


def _not_trained(cell: dict[str, Any], study: Study) -> list[str]:
    """The measures of which a cell decides nothing: shares of which more is better, where it is not above the untrained
    encoder and the raw input. All, if it is above them in no such share, or its loss stayed at chance."""
    shares = [m.name for m in study.measures if m.percent and m.better == "higher"]
    above = {name: of for name in shares if (of := cell["separates"][name]) is not None}
    if cell.get("at_chance") or (above and not any(above.values())):
        return [m.name for m in study.measures]
    return [name for name, of in above.items() if not of]


def _at_chance(values: Mapping[int, Values]) -> bool:
    """Whether the mean loss of the last epoch is less than 1% below the chance level, as `training.train` warns, or, of
    runs that log no level, differs by less than 1% from that of the first epoch."""
    columns = ["loss", "below chance", "loss, first epoch"]
    last, below, first = pd.DataFrame([*values.values()]).reindex(columns=columns).astype(float).mean()
    if math.isfinite(below):
        return bool(below < 0.01 * (1 + abs(last + below)))
    return bool(abs(last - first) < 0.01 * abs(first))


def _cell(found: Found, cell: Cell, looks: Sequence[tuple[_run.Place, _run.Look]]) -> dict[str, Any]:
    study = found.study
    of = {m.name: found.of(cell, m.name) for m in study.measures}
    other = None if study.reference is None else partner(study, cell, study.reference)
    gaps = {} if other is None or other is cell else {m: difference(found, cell, other, m) for m in of}
    seeds = dict.fromkeys(seed for values in of.values() for seed in values)
    return {
        "name": cell.name,
        "factors": dict(cell.factors),
        "instances": getattr(cell.task, "instances", None),
        "folder": f"cells/{looks[0][0].folder.parent.name}",
        **_printed(cell),
        "seeds": {str(s): {m: _rounded(values[s]) for m, values in of.items() if s in values} for s in seeds},
        "status": {str(place.seed): look.state for place, look in looks},
        "reasons": sorted({reason for _, look in looks for reason in look.reasons}),
        "intervals": {m: _plain(_inside(m, study, values)) for m, values in of.items()},
        "differences": {m: {"to": other.name, **_plain(gap)} for m, gap in gaps.items() if other},
    }


def _inside(name: str, study: Study, values: Mapping[int, float]) -> metrics.Interval:
    """The interval of a measure; of shares inside 0 to 100%, where the mean is."""
    found = metrics.interval(values.values())
    share = any(m.percent and m.better for m in study.measures if m.name == name)
    if not share or found.seeds < 2:
        return found
    return found._replace(low=max(0.0, found.low), high=min(100.0, found.high))


def _printed(cell: Cell) -> dict[str, dict[str, float]]:
    return {"printed": dict(cell.printed), "deviations": dict(cell.deviations)}


def _baselines(found: Found, measure: Measure) -> tuple[list[bool | None], dict[str, float]]:
    """Of each cell whether training changed a measure, and row -> mean of the untrained encoder and the raw input.

    It has, if the paired interval to the better baseline is above 0 (below, where less is better); None without
    baselines. A cell whose runs do not measure the baselines has those of other cells, if all that measure them have
    the same raw input; else there are several data sets, and no one baseline.
    """
    names = {measure.name: "own", **{f"{row}: {measure.name}": row for row in BASELINES}}
    lines, tasks = [], [cell.task for cell in found.study.cells]
    for place, (task, of) in enumerate(zip(tasks, found.values)):
        for seed, values in of.items():
            line = {known: values[name] for name, known in names.items() if name in values}
            if isinstance(task, Baseline) and "own" in line:
                line = {task.row: line["own"]}
            lines.append({"cell": place, "seed": seed, **line})
    every = pd.DataFrame(lines, columns=["cell", "seed", "own", *BASELINES], dtype=float)
    raw, means = every["raw input"].dropna(), {}
    if not len(raw) or np.ptp(raw) <= 1e-6 * raw.abs().max():
        own = [place for place, task in enumerate(tasks) if isinstance(task, Baseline)]
        mean = (100.0 if measure.percent else 1.0) * every.loc[~every["cell"].isin(own), [*BASELINES]].mean()
        means = {row: _rounded(value) for row, value in mean.dropna().items()}
        of_seed = every.groupby("seed")[[*BASELINES]].transform("first")  # of the first cell that has it
        every = every.fillna(of_seed)
    sign = {"higher": 1, "lower": -1}.get(measure.better, math.nan)
    gaps = (sign * every[[*BASELINES]].rsub(every["own"], axis=0)).min(axis=1).dropna().groupby(every["cell"])
    above = {place: metrics.interval(of).low > 0 for place, of in gaps if len(of) > 1}
    return [above.get(place) for place in range(len(tasks))], means


def _plain(of: metrics.Interval) -> dict[str, float | int | None]:
    ends = (_rounded(end) if math.isfinite(end) else None for end in of[:3])
    return {**dict(zip(("mean", "low", "high"), ends)), "seeds": of.seeds}


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")  # more than the spread over seeds justifies


def write(content: dict[str, Any], folder: Path, stem: str) -> Path:
    """Write STEM.json, STEM.csv, STEM.svg and STEM.md of the content from `numbers`; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    # JSON with a line for each cell: small, and readable as a difference of two versions.
    cells = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in content["cells"])
    rest = json.dumps({name: value for name, value in content.items() if name != "cells"}, indent=1)
    text = f'{rest.removesuffix("}").rstrip()},\n "cells": [\n{cells}\n]}}\n'
    _files.write_whole(folder / f"{stem}.json", text)
    _files.write_whole(folder / f"{stem}.csv", rows(content))
    with _files.replacing(folder / f"{stem}.svg") as beside:
        _page.plot(content, beside)
    if content.get("maps") and any(cell["seeds"] for cell in content["cells"]):
        _page.heat_map(content, folder / f"{stem}_maps.svg", content["maps"])
    _files.write_whole(folder / f"{stem}.md", _page.page(content, f"{stem}.svg"))
    return folder / f"{stem}.md"


def rows(content: dict[str, Any]) -> str:
    """CSV of every seed: the factors, the seed, its state, the measures, "NAME, measured" beside a factor NAME."""
    names = [measure["name"] for measure in content["measures"]]
    lines = [
        # a further network of a run has no state of its own
        [*cell["factors"].values(), seed, cell["status"].get(seed, "finished"), *map(of.get, names)]
        for cell in content["cells"]
        for seed in sorted({*cell["status"], *cell["seeds"]}, key=int)
        for of in [cell["seeds"].get(seed, {})]
    ]
    factors = content["factors"]
    measured = [f"{name}, measured" if name in factors else name for name in names]
    frame = pd.DataFrame(lines, columns=[*factors, "seed", "state", *measured], dtype=object)
    return frame.to_csv(index=False, lineterminator="\n")


_COMPARED = (
    "The config of the command above is trained with each objective and nothing else changed, so that differences are "
    "paired by seed. The options of an objective are its own: none was tuned for this config."
)


def compare(
    config: Config,
    objectives: Mapping[str, losses.Loss] | Sequence[losses.Loss],
    folder: str | Path,
    *,
    seeds: int = 3,
    levels: Mapping[str, Sequence[Any]] | None = None,
    command: str = "mvcl.studies.compare",
) -> pd.DataFrame:
    """Train a config with each objective and several seeds, and compare what its evaluation measures.

        table = studies.compare(config, [losses.mv_dhel, my_loss], "runs/compare/mine", seeds=3)

    Finished runs are kept, in `folder`/../cells, for every comparison beside this one. The page compare.md has the
    table with 95% intervals, baselines, paired differences to the first objective and a figure; compare.csv all seeds.

    Args:
      config: whose `evaluation` gives the measures.
      objectives: functions, by the names to show or by their own.
      folder: of the page.
      seeds: at least 1; of one seed there are no intervals.
      levels: dotted field -> its values, {"views.k": (2, 4)}: every combination is trained.
      command: shown on the page.

    Returns:
      A row for each objective, combination and measure: mean, low and high (95%), seeds, and the paired difference to
      the first objective, `minus_first`, with its ends. `attrs` has the `page` and how many runs `failed`.

    Raises:
      ValueError: no objective is given, two have one name, or nothing was measured.
    """
    named = objectives if isinstance(objectives, Mapping) else {losses.name(of): of for of in objectives}
    if not named or len(named) < len(objectives):
        got = list(objectives)
        raise ValueError(f"objectives must be functions of different names, or a dict, got {got}")
    grid, place = dict(levels or {}), Path(folder)
    cells = []
    for combination in itertools.product(*grid.values()):
        of: dict[str, Any] = dict(zip(grid, combination))
        cells += [trained({"objective": n} | of, config, {"objective": f} | of) for n, f in named.items()]
    several = len({getattr(cell.task, "instances", None) for cell in cells}) > 1
    study = Study(
        title="Objectives compared",
        about=_COMPARED,
        cells=cells,
        measures=[Measure("loss")],
        reference={"objective": cells[0].factors["objective"]},
        unequal="The settings change the number of instances that are compared." * several,
        seeds=seeds,
        cost="not estimated",
    )
    failed = _run.run(study, place)
    measures = _measures(study, place)
    if not measures:
        raise ValueError(f"no run has measured anything; the logs in {place / 'cells'} say why")
    study = dataclasses.replace(study, measures=measures)
    content = numbers(Opened("compare", "", study, (command,)), place)
    content["command"] = command
    scale = {m.name: 0.01 if m.percent else 1.0 for m in measures}
    columns = {"mean": "minus_first", "low": "minus_first_low", "high": "minus_first_high"}
    lines: list[dict[str, Any]] = []
    for cell in content["cells"]:
        for name, interval in cell["intervals"].items():
            by, gap = scale[name], cell["differences"].get(name, {})
            ends = {end: math.nan if interval[end] is None else by * interval[end] for end in columns}
            gaps = {column: by * gap[end] for end, column in columns.items() if gap.get(end) is not None}
            lines.append({**cell["factors"], "measure": name, **ends, "seeds": interval["seeds"], **gaps})
    frame = pd.DataFrame(lines)
    frame.attrs |= {"page": str(write(content, place, "compare")), "failed": failed}
    return frame


def _measures(study: Study, folder: Path) -> list[Measure]:
    """What the evaluation of a finished run has measured."""
    for place in _run.places(study, folder):
        if _run.look(place).state in ("finished", "stale"):
            rows = json.loads((place.folder / "evaluation.json").read_text())["rows"]["trained encoder"]
            known = [of for of in rows if of["value"] is not None]
            shares = [of["better"] == "higher" and 0 <= of["value"] <= 1 for of in known]
            return [
                Measure(of["name"], percent=share, digits=1 if share else 3, better=of["better"])
                for of, share in zip(known, shares)
            ]
    return []
