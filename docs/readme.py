"""Writes the table of objectives in README.md, with the speed of each beside its released code.

    python -m docs.readme

The speeds are those of docs/design/released.json, which `python -m benchmarks.released` writes. The table stands
between `<!-- objectives -->` and `<!-- end -->`.
"""

import collections
import json
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, NUMBERS = ROOT / "README.md", ROOT / "docs" / "design" / "released.json"
PLACE = re.compile(r"(<!-- objectives -->\n).*?(<!-- end -->)", re.DOTALL)


# The table of the docs, a row each: what the objectives compare, the objectives, and a note after them. An objective
# stands here once; all else on the pages follows from its docstring and declaration.
GROUPS = (
    ("two views, with negatives", "info_nce nt_xent dcl dhel rince siglip spectral", ""),
    ("two views, without", "byol vicreg barlow_twins", ""),
    ("many views, by pairs", "all_pairs one_vs_rest mean_pair cross_pairs", ", each of a loss of two views"),
    (
        "many views at once",
        "multi_view_contrast mv_infonce mv_dhel mv_cl1 mv_cl2 poly_view sufficient_statistics poly_siglip",
        "",
    ),
    ("k modalities jointly", "symile gram triangle pmrl", ""),
    ("many views, without negatives", "mmcr frossl emp_ssl lejepa visreg", ""),
    ("all tuples of instances", "m3g m3g_pair", ""),
    ("each view and all views fused", "comm inf_masking factor_cl", ""),
    ("global and local views", "dsf", "; `cross_pairs`; `lejepa` and `visreg` with `global_views`"),
)


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
    for compares, objectives, note in GROUPS:
        cells = [f"`{name}`{speed(first.get(name))}" for name in objectives.split()]
        lines.append(f"| {compares} | {', '.join(cells)}{note} |")
    (usual, _), *_ = collections.Counter(row["shape"][1] for row in first.values()).most_common()
    others = [f"`{name}` {row['shape'][1]}" for name, row in first.items() if row["shape"][1] != usual]
    numbers = (
        "The number is the speed-up of value and gradient over the released PyTorch code (`m3g`, `m3g_pair`: over ott),"
        f" for {usual:,} instances ({', '.join(others)}) of {results['rows'][0]['shape'][2]} features on one CPU"
        " thread. Blank: no released code ([method](docs/design/released.md))."
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
