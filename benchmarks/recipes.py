"""What every recipe costs: the true-size step of each config of a paper, compiled on this machine.

python -m benchmarks.recipes --write docs/how_to/recipes.md
python -m benchmarks.recipes --write docs/how_to/recipes.md --only jeon    # keep the other rows of that file
"""

import re
import sys
import time
from pathlib import Path

from benchmarks.harness import parser_of
from mvcl import _configs, training

HEADER = """# The papers' recipes

One config for each experiment, under its author's name: AUTHOR/NAME, or a variant of it, AUTHOR/NAME:VARIANT. The first
lines of the file give its commands. `mvcl train CONFIG --dry-run` prints its cost on the devices at
hand; the table is made by `python -m benchmarks.recipes --write docs/how_to/recipes.md`, on one CPU device in
float32 (bfloat16 where the recipe asks for it), for data of their published size. FLOPs and bytes are those of one step
with the global batch of the recipe, from XLA's analysis of the compiled program, which counts the iterations of a loop,
such as a solver's, once. Relative compute is Shidani 2024, Eq. 29: encoder passes by those of 128 epochs of two views.

| recipe | n x k | encoder | head | GFLOP / step | GB / step | temporaries, GB | steps | run, PFLOP | relative |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def link(recipe: str) -> str:
    """A link to the file of a recipe."""
    return f"[{recipe}](../../configs/{recipe.partition(':')[0]}.py)"


def row(recipe: str, e: training.Estimate) -> str:
    """One line of the table."""
    cells = [link(recipe), f"{e.config.examples:,} x {e.config.views.k}"]
    cells += [f"{count:,}" for count in (e.encoder_parameters, e.head_parameters)]
    cells += [f"{cost / 1e9:,.1f}" for cost in (e.flops, e.bytes, e.temporary_bytes)]
    cells += ["unknown", ""] if e.steps is None else [f"{e.steps:,}", f"{e.steps * e.flops / 1e15:,.3g}"]
    cells.append("" if e.relative_compute is None else f"{e.relative_compute:.3g}")
    return f"| {' | '.join(cells)} |"


def sources() -> dict[str, str]:
    """NAME or NAME:VARIANT of each experiment of a paper, with the first line of its docstring."""
    found = {}
    for name, file in _configs.names().items():
        if "/" not in name:
            continue
        for variant, line in _configs.variants(file).items():
            if variant == "get_config":
                found[name] = _configs.summary(file)
            elif variant != "tables" and not variant.startswith("smoke"):  # one's own tables have any size
                found[f"{name}:{variant}"] = line
    return found


def main() -> None:
    """Estimate each recipe and print or write the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--write", type=Path, help="file for the table")
    parser.add_argument(
        "--only", default="", help="recipes that begin so; the other rows are read from --write"
    )
    options = parser.parse_args()
    training.compilation_cache()
    recipes = sources()
    old = options.write.read_text() if options.only and options.write is not None else ""
    rows = {name: line for name, line in written(old).items() if name in recipes}
    chosen = [recipe for recipe in recipes if recipe.startswith(options.only)]
    started = time.monotonic()
    for i, recipe in enumerate(chosen):
        try:
            rows[recipe] = row(recipe, training.estimate(training.load(recipe)))
        except ValueError as error:
            print(f"{recipe}: {error}", file=sys.stderr)
            continue
        print(
            f"{i + 1}/{len(chosen)} {rows[recipe]}  {time.monotonic() - started:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    table = [rows[recipe] for recipe in recipes if recipe in rows]
    lines = [f"- {link(recipe)}: {line}" for recipe, line in recipes.items()]
    text = HEADER + "\n".join(table) + "\n\n## Which is which\n\n" + "\n".join(lines) + "\n"
    if options.write is not None:
        options.write.write_text(text)
    else:
        print(text)


def written(page: str) -> dict[str, str]:
    """The rows of a written table by recipe."""
    return {name: line for line, name in re.findall(r"^(\| \[(.*?)\]\(.*)$", page, re.MULTILINE)}


if __name__ == "__main__":
    main()
