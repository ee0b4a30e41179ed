"""What every recipe costs: the true-size step of each config of a paper, compiled on this machine, and its memory on
several devices, by a model of it.

python -m benchmarks.recipes --write docs/how_to/recipes.md
python -m benchmarks.recipes --write docs/how_to/recipes.md --only jeon    # keep the other rows of that file
python -m benchmarks.recipes --write docs/how_to/recipes.md --memory       # the rows of memory that are missing
"""

import dataclasses
import re
import sys
import time
from pathlib import Path

from benchmarks.harness import parser_of
from mvcl import _configs, training
from mvcl.training import _cost, _memory

HEADER = """# The papers' recipes

One config for each experiment, under its author's name: AUTHOR/NAME, or a variant of it, AUTHOR/NAME:VARIANT. The first
lines of the file give its commands. `mvcl train CONFIG --dry-run` prints its cost on the devices at
hand; the table is made by `python -m benchmarks.recipes --write docs/how_to/recipes.md`, on one CPU device in
float32 (bfloat16 where the recipe asks for it), for data of their published size. FLOPs and bytes are those of one step
with the global batch of the recipe, from XLA's analysis of the compiled program, which counts the iterations of a loop,
such as a solver's, once. Probe is further PFLOP, of encoding the training images, in
every epoch of a linear probe with augmentation. Relative compute is Shidani 2024, Eq. 29: encoder passes by those of
128 epochs of two views.

| recipe | n x k | encoder | head | GFLOP / step | GB / step | temporaries, GB | steps | run, PFLOP | probe | relative |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


MEMORY = """
## Memory

GB of each device on 1, 8, 32, 64 and 256 devices, with `--train.remat none`, `blocks` and `full`: the whole of a step.
The columns before have its parameters (with those of a momentum encoder and running statistics), the optimiser's state
and three batches of one device; the rest are temporaries. FLOPs are those of `blocks` and `full` by those of `none`.
The last columns are the smallest numbers of devices, powers of 2, of which a step takes at most 90 % of the memory: 80
GB GPUs, for which `XLA_PYTHON_CLIENT_MEM_FRACTION=.9` is set, and TPU cores of 32 and 16 GB. A dash is a batch that
does not divide, such as groups of 64 on more devices than groups. Precision is the recipe's; `auto` is bfloat16.

All rows are by the model of `mvcl/training/_memory.py`, which traces the step and compiles nothing;
`mvcl train CONFIG --dry-run --devices N` prints it for any config. Its temporaries by those of XLA's analysis of the
compiled step, in float32 on one CPU device: ResNet-50 0.89 to 0.93, ResNet-18 on 32 pixels 0.90 and 0.97, ViT-B and
ViT-S 0.88 and 0.83, the sentiment and EEG encoders 0.73 and 0.69; on 8 devices ResNet-18 and the sentiment encoders
0.91. With `blocks` ResNet-50 has 0.86, ResNet-18 on 8 devices 0.87 and a small ConvNet 0.76, but the sentiment encoders
0.39: XLA computes blocks of two encoders at once and holds the weights of their attention over 501 tokens twice, where
the model has one encoder after the other. ViTs with `blocks` were not compiled. The FLOPs of its products and
convolutions are 0.92 to 1.14 of XLA's.
XLA computes bfloat16 in float32 on a CPU, so that the model alone has the recipe's precision; its attention in bfloat16
is a fused kernel, which stores no scores. In ResNets the gradient of the stem's pooling needs the most with `blocks`,
which `full` does not reduce.

| recipe | n x k | parameters | optimiser | batch | FLOPs | 1 | 8 | 32 | 64 | 256 | 80 GB | 32 GB | 16 GB |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""
# Of configs, what changes no size: addresses of functions, initial weights and scalars.
_SAME = r" at 0x\w+|\b(init|initial|stem_initial|temperature|momentum|end_momentum)=[^,)]*"
DEVICES = (1, 8, 32, 64, 256)


def gigabytes(size: float | None) -> str:
    """Three digits of a size; a dash where there is none."""
    return "–" if size is None else f"{size / 1e9:.3g}" if size < 1e12 else f"{size / 1e9:,.0f}"


class Memory:
    """Rows of the table of memory; recipes that differ in numbers of examples only are traced once."""

    def __init__(self) -> None:
        self.traced: dict[str, dict[str, _memory.Model]] = {}

    def row(self, recipe: str) -> str:
        config, outline, *_ = _cost.outlined(training.load(recipe))
        views, train = config.views, config.train
        parts = [config.encoder, config.head, config.method, config.objective, views.k, views.global_views]
        sizes = [policy.image_size for policy in config.policies]
        parts += [sizes, outline.spec, outline.missing, outline.classes, type(config.optimizer)]
        parts += [train.group, train.microbatch, train.precision, train.ema > 0]
        key = re.sub(_SAME, "", repr(parts))
        found = self.traced.get(key) or _memory.models_of(config, outline)
        self.traced[key] = found
        for policy, model in found.items():  # traced for another number of examples, it may be
            model.config = dataclasses.replace(config, train=dataclasses.replace(train, remat=policy))
        first = found["none"].on(1)
        cells = [link(recipe), f"{config.examples:,} x {views.k}"]
        cells += [gigabytes(size) for size in (first.parameters, first.optimizer, first.batch)]
        extra = [model.on(1).flops / first.flops for policy, model in found.items() if policy != "none"]
        cells.append(" / ".join(f"{factor:.2f}" for factor in extra))
        of_devices = [[total(model, devices) for model in found.values()] for devices in DEVICES]
        cells += [" / ".join(map(gigabytes, totals)) for totals in of_devices]
        for capacity in _memory.CAPACITIES.values():
            least = [_memory.fewest(model, capacity) for model in found.values()]
            cells.append(" / ".join("–" if number is None else str(number) for number in least))
        return f"| {' | '.join(cells)} |"


def total(model: _memory.Model, devices: int) -> float | None:
    """Bytes of a step on each of so many devices; None where the batch does not divide."""
    try:
        return model.on(devices).total
    except ValueError:
        return None


def link(recipe: str) -> str:
    """A link to the file of a recipe."""
    return f"[{recipe}](../../configs/{recipe.partition(':')[0]}.py)"


def row(recipe: str, e: training.Estimate) -> str:
    """One line of the table."""
    cells = [link(recipe), f"{e.config.examples:,} x {e.config.views.k}"]
    cells += [f"{count:,}" for count in (e.encoder_parameters, e.head_parameters)]
    cells += [f"{cost / 1e9:,.1f}" for cost in (e.flops, e.bytes, e.temporary_bytes)]
    cells += ["unknown", ""] if e.steps is None else [f"{e.steps:,}", f"{e.steps * e.flops / 1e15:,.3g}"]
    cells.append("" if e.evaluation_flops is None else f"{e.evaluation_flops / 1e15:,.3g}")
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
    """Estimate each recipe and print or write the tables, after each row of memory."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--write", type=Path, help="file for the tables")
    add("--only", default="", help="recipes that begin so; the other rows are read from --write")
    add("--memory", action="store_true", help="only rows of memory, those that --write has not")
    options = parser.parse_args()
    training.compilation_cache()
    recipes = sources()
    old = options.write.read_text() if (options.only or options.memory) and options.write is not None else ""
    cost, _, after = old.partition(MEMORY.split("\n")[1])
    tables = [{name: line for name, line in written(x).items() if name in recipes} for x in (cost, after)]
    of_memory, started = Memory(), time.monotonic()
    for recipe in (recipe for recipe in recipes if recipe.startswith(options.only)):
        try:
            if not options.memory:
                tables[0][recipe] = row(recipe, training.estimate(training.load(recipe)))
            if not options.memory or recipe not in tables[1]:
                tables[1][recipe] = of_memory.row(recipe)
        except ValueError as error:
            print(f"{recipe}: {error}", file=sys.stderr)
            continue
        line = tables[options.memory].get(recipe, "")
        print(f"{line}  {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        if options.write is not None:
            options.write.write_text(page(recipes, tables))
    if options.write is None:
        print(page(recipes, tables))


def page(recipes: dict[str, str], tables: list[dict[str, str]]) -> str:
    """The page of the recipes, with the rows of both tables in their order."""
    cost, memory = ("\n".join(rows[recipe] for recipe in recipes if recipe in rows) for rows in tables)
    lines = [f"- {link(recipe)}: {line}" for recipe, line in recipes.items()]
    return f"{HEADER}{cost}\n{MEMORY}{memory}\n\n## Which is which\n\n" + "\n".join(lines) + "\n"


def written(page: str) -> dict[str, str]:
    """The rows of a written table by recipe."""
    return {name: line for line, name in re.findall(r"^(\| \[(.*?)\]\(.*)$", page, re.MULTILINE)}


if __name__ == "__main__":
    main()
