"""Piran 2024, Figure 4: time of a training step with M3G by number of views k, beside pairwise InfoNCE.

Section 5: ViT-B/16, student and teacher, 64 examples a device. No training: steps of two programs in turn; `--images
imagenet --groups 32` is the paper's batch of ImageNet-1K (docs/how_to/data.md). `python -m benchmarks.overhead` has
other sizes, and the passes of the solver.
"""

import itertools
from typing import Any, Literal

import _bench
import _piran
import _steps
from _piran import M3G

from mvcl import training
from mvcl.studies import Cell, Claim, Measure, Study, Trend, Within, changed
from mvcl.training import Config, Mesh

_ABOUT = """\
The ratio of the time of a whole training step (views, encoder, loss, gradient and update) to that with pairwise
InfoNCE, the median over steps in turn; a seed is a repetition. InfoNCE of the average shows the error of the
measurement. The paper's figure has no numbers, nor does "a relatively minor compute overhead"; here minor means at most
1.5. On a CPU the times are those of computation by the process, on other devices those of a clock, on whatever machine
the page names; the paper has 4 nodes of 8 A100, a group of 64 on each, which also sum their gradients."""
_SMALL = """

**Small scale.** The ConvNet of the bench (docs/how_to/bench.md) on random images of 32 x 32, k views of one policy, one
group of 64 examples: an encoder that computes far less than ViT-B/16 beside the same loss, so that the overhead is
larger than it would be there."""

AVERAGE = "InfoNCE ave"


def paper(seeds: int = 3, *, images: Literal["imagenet", "random"] = "random", groups: int = 1) -> Study:
    """ViT-B/16, student and teacher, groups of 64.

    Args:
      images: of ImageNet-1K, or random ones of the same size, which cost a step as much.
      groups: number of groups of 64 in a batch, each on a device of its own; the paper's is 32.
    """
    changes: dict[str, Any] = {"train.batch_size": 64 * groups, "mesh": Mesh(data=groups)}
    if images == "random":
        changes["data"] = _steps.images(224, 64 * groups)
    base = changed(training.load("piran/images:imagenet1k"), changes)
    about = f"{_ABOUT}\n\nHere a batch has {64 * groups} examples, {images} images of 224 x 224 pixels."
    cost = f"one GPU of 80 GB (on a smaller one with train.microbatch), {100 * seeds} seconds, estimated"
    cost += "; with 32 groups 32 of them"
    return _study(base, (2, 3, 4), 60.0, about=about, seeds=seeds, cost=cost)


def small(seeds: int = 5) -> Study:
    """A ConvNet; five seeds, since times differ by the machine, not by the training."""
    changes = {**_piran.taught(), "train.batch_size": 64, "mesh": Mesh(data=1)}
    base = changed(_bench.bench_of(2, _steps.images(32, 64)), changes)
    about, cost = _ABOUT + _SMALL, f"2 CPU cores, {0.3 * seeds:.2g} minutes, estimated"
    return _study(base, (2, 4), 2.0, about=about, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Five steps of a small network on random images, without a teacher."""
    return _study(_bench.smoke_of(2), (2,), 0.0, about=_ABOUT, seeds=seeds, cost="seconds")


def _study(base: Config, views: tuple[int, ...], seconds: float, **scale: Any) -> Study:
    objectives, cells = _piran.methods(), []
    for name, k in itertools.product((M3G, AVERAGE), views):
        config = changed(base, {"views.k": k, **_steps.QUIET})
        mine, other = (changed(config, {"objective": objectives[of]}) for of in (name, "InfoNCE pwe"))
        task = _steps.StepTime(config=mine, reference=other, seconds=seconds)
        cells.append(Cell({"method": name, "k": k}, task))
    minor = "M3G incurs a minor overhead (here: a step takes at most 1.5 times as long)"
    rises = "The overhead of M3G rises with k, as its cost n^k does"
    claims: list[Claim] = [Within(minor, "Section 5, Figure 4", "ratio", {"method": M3G}, high=1.5)]
    claims += [Trend(rises, "Section 6.2", "ratio", {"method": M3G}, "k")] if len(views) > 1 else []
    return Study(
        title="Piran 2024, Figure 4: time of a training step by number of views",
        cells=cells,
        measures=(
            Measure("ratio", label="time by that of pairwise InfoNCE", digits=2, better="lower"),
            Measure("milliseconds", label="step, ms", better="lower"),
            Measure("reference", label="step of pairwise InfoNCE, ms", better=""),
        ),
        claims=claims,
        reference={"method": AVERAGE},
        along="k",
        **scale,
    )
