"""Writes the table of objectives in README.md, with the speed of each beside its released code.

    python -m docs.readme

The speeds are those of docs/design/released.json, which `python -m benchmarks.released` writes. The table stands
between `<!-- objectives -->` and `<!-- end -->`.
"""

import collections
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mvcl import losses

ROOT = Path(__file__).parents[1]
PAGE, NUMBERS = ROOT / "README.md", ROOT / "docs" / "design" / "released.json"
PLACE = re.compile(r"(<!-- objectives -->\n).*?(<!-- end -->)", re.DOTALL)


class Group(NamedTuple):
    compares: str
    objectives: Sequence[Callable[..., Any]]
    note: str = ""  # after the objectives


GROUPS = [
    Group(
        "two views, with negatives",
        [
            losses.info_nce,
            losses.nt_xent,
            losses.dcl,
            losses.dhel,
            losses.rince,
            losses.siglip,
            losses.spectral,
        ],
    ),
    Group("two views, without", [losses.byol, losses.vicreg, losses.barlow_twins]),
    Group(
        "many views, by pairs",
        [losses.all_pairs, losses.one_vs_rest, losses.mean_pair, losses.cross_pairs],
        ", each of a loss of two views",
    ),
    Group(
        "many views at once",
        [
            losses.mv_infonce,
            losses.mv_dhel,
            losses.mv_cl1,
            losses.mv_cl2,
            losses.poly_view,
            losses.sufficient_statistics,
            losses.poly_siglip,
        ],
    ),
    Group("k modalities jointly", [losses.symile, losses.gram, losses.triangle, losses.pmrl]),
    Group(
        "many views, without negatives",
        [losses.mmcr, losses.frossl, losses.emp_ssl, losses.lejepa, losses.visreg],
    ),
    Group("all tuples of instances", [losses.m3g, losses.m3g_pair]),
    Group(
        "global and local views", [losses.dsf], "; `cross_pairs`; `lejepa` and `visreg` with `global_views`"
    ),
]


def speed(row: dict[str, Any] | None) -> str:
    """How many times as fast as the released code; nothing without such code."""
    if row is None or row["released_ms"] is None:
        return ""
    times = row["released_ms"] / row["ours_ms"]
    return f" {times:.0f}x" if times >= 10 else f" {times:.1f}x"


def part(results: dict[str, Any]) -> str:
    """The table, and what its numbers mean."""
    first: dict[str, dict[str, Any]] = {}
    for row in results["rows"]:
        first.setdefault(row["objective"], row)
    lines = ["| compares | objectives |", "| --- | --- |"]
    for group in GROUPS:
        cells = [f"`{name}`{speed(first.get(name))}" for name in map(losses.name, group.objectives)]
        lines.append(f"| {group.compares} | {', '.join(cells)}{group.note} |")
    (usual, _), *_ = collections.Counter(row["shape"][1] for row in first.values()).most_common()
    others = [f"`{name}` {row['shape'][1]}" for name, row in first.items() if row["shape"][1] != usual]
    numbers = (
        "The numbers say how many times as fast as released PyTorch code (`m3g`, `m3g_pair`: as ott) value and gradient"
        f" are, with {usual:,} instances ({', '.join(others)}) of {results['rows'][0]['shape'][2]} features on one CPU"
        " thread; without a number, none was found ([how](docs/design/released.md))."
    )
    return "\n".join(
        [*lines, "", textwrap.fill(numbers, 120, break_long_words=False, break_on_hyphens=False)]
    )


def written(page: str, results: dict[str, Any]) -> str:
    """The page with its table.

    Raises:
      ValueError: the place is not there, or there are two.
    """
    text, count = PLACE.subn(lambda found: f"{found[1]}\n{part(results)}\n\n{found[2]}", page)
    if count != 1:
        raise ValueError(f"README.md must have one part '<!-- objectives -->', got {count}")
    return text


def main() -> None:
    results = json.loads(NUMBERS.read_text(encoding="utf-8"))
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
