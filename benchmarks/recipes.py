"""What every recipe costs: the true-size step of each config under configs/AUTHOR, compiled on this machine.

python -m benchmarks.recipes --write docs/recipes.md
"""

import argparse
import ast
import sys
import time
from pathlib import Path

from mvcl import training

ROOT = Path(__file__).parents[1]
HEADER = """# The papers' recipes

One config for each experiment, under its author's name; the first lines of the file give its commands. `mvcl train
CONFIG --dry-run` prints what it costs, for the number of devices there are; the table is made by `python -m
benchmarks.recipes --write docs/recipes.md`, on one CPU device in float32 (bfloat16 where the recipe asks for it), for
data of their published size. FLOPs and bytes are those of one step with the global batch of the recipe, from XLA's
analysis of the compiled program, which counts the iterations of a loop, such as a solver's, once. Relative compute is
Shidani 2024, Eq. 29: encoder passes by those of 128 epochs of two views.

| recipe | n x k | encoder | head | GFLOP / step | GB / step | temporaries, GB | steps | run, PFLOP | relative |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def row(recipe: str, e: training.Estimate) -> str:
    """One line of the table."""
    steps = "unknown" if e.steps is None else f"{e.steps:,}"
    whole = "" if e.steps is None else f"{e.steps * e.flops / 1e15:,.3g}"
    relative = "" if e.relative_compute is None else f"{e.relative_compute:.3g}"
    cells = [
        f"[{recipe.removeprefix('configs/')}](../{recipe})",
        f"{e.examples:,} x {e.views}",
        f"{e.encoder_parameters:,}",
        f"{e.head_parameters:,}",
        f"{e.flops / 1e9:,.1f}",
        f"{e.bytes / 1e9:,.1f}",
        f"{e.temporary_bytes / 1e9:,.1f}",
        steps,
        whole,
        relative,
    ]
    return f"| {' | '.join(cells)} |"


def experiments(recipes: list[Path]) -> str:
    """What each file is, from its first line."""
    lines = []
    for path in recipes:
        name = str(path.relative_to(ROOT))
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
        lines.append(f"- [{name.removeprefix('configs/')}](../{name}): {first}")
    return "\n".join(lines)


def main() -> None:
    """Estimate each recipe and print or write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, help="file for the table")
    options = parser.parse_args()
    training.compilation_cache()
    files = sorted((ROOT / "configs").glob("*/*.py"))
    recipes, rows = [file for file in files if file.stem != "tables"], []  # one's own tables have any size
    started = time.monotonic()
    for i, path in enumerate(recipes):
        recipe = str(path.relative_to(ROOT))
        try:
            rows.append(row(recipe, training.estimate(training.load(path))))
        except ValueError as error:
            print(f"{recipe}: {error}", file=sys.stderr)
            continue
        print(
            f"{i + 1}/{len(recipes)} {rows[-1]}  {time.monotonic() - started:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    text = HEADER + "\n".join(rows) + "\n\n## Which is which\n\n" + experiments(recipes) + "\n"
    if options.write is not None:
        options.write.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
