"""Piran 2024, Figure 4: time of a training step with M3G by number of views k, beside pairwise InfoNCE.

    mvcl study piran_figure4 --scale paper
    mvcl study piran_figure4 --scale small

Section 5: ViT-B/16 on ImageNet-1K (docs/how_to/data.md), student and teacher, 64 examples a device. No training: steps
of two programs in turn. Cost: minutes on the accelerators of the recipe; small, a ConvNet on digits, a minute on 2 CPU
cores; smoke seconds. `python -m benchmarks.overhead` has other sizes, and the passes of the solver.
"""

from functools import partial

from mvcl import augment, losses, studies, training
from mvcl.studies import Cell, Measure, StepTime, Study, Trend, Within
from mvcl.training import Config

_ABOUT = """\
The ratio of the time of a whole training step (views, encoder, loss, gradient and update) to that with pairwise
InfoNCE, the median over steps in turn; a seed is a repetition. InfoNCE of the average shows the error of the
measurement. The paper's figure has no numbers, nor does "a relatively minor compute overhead"; here minor means at most
1.5. On a CPU the times are those of computation by the process, on other devices those of a clock, on whatever machine
the page names; the paper has 4 nodes of 8 A100."""
_SMALL = """

**Small scale.** A ConvNet of 6,000 parameters on digits enlarged to 16 x 16, k views of one policy, one group of 64
examples: an encoder that computes far less than ViT-B/16 beside the same loss, so that the overhead is larger than it
would be there."""

M3G, AVERAGE = "M3G", "InfoNCE ave"
_METHODS: dict[str, losses.Loss] = {
    M3G: partial(losses.m3g, epsilon=0.2),
    AVERAGE: losses.one_vs_rest(losses.info_nce),
}


def paper(seeds: int = 3) -> Study:
    """ImageNet-1K, ViT-B/16, batch 2048 in groups of 64."""
    base = training.load("piran/images:imagenet1k")
    return _study(base, (2, 3, 4), seeds, 60.0, "the accelerators of the recipe, half an hour, estimated")


def small(seeds: int = 5) -> Study:
    """A ConvNet on digits."""
    base = studies.changed(
        training.load("digits:student_teacher"),
        {"train.group": None, "views.policy": augment.digits(image_size=16), "encoder.widths": (8, 16, 32)},
    )
    return _study(base, (2, 4), seeds, 2.0, "2 CPU cores, 1.5 minutes, estimated", _SMALL)


def smoke(seeds: int = 2) -> Study:
    """Five steps of a small network on random vectors, without a teacher."""
    base = studies.vectors_of(2)
    return _study(base, (2,), seeds, 0.0, "seconds")


def _study(
    base: Config, views: tuple[int, ...], seeds: int, seconds: float, cost: str, differences: str = ""
) -> Study:
    def task(objective: losses.Loss, k: int) -> StepTime:
        config = studies.changed(base, {"views.k": k, "train.log_every": 10**6, "train.evaluate_every": 0})
        pairwise = losses.all_pairs(losses.info_nce)
        return StepTime(
            config=studies.changed(config, {"objective": objective}),
            reference=studies.changed(config, {"objective": pairwise}),
            seconds=seconds,
        )

    claims: list[Within | Trend] = [
        Within(
            text="M3G incurs a minor overhead (here: a step takes at most 1.5 times as long)",
            source="Section 5, Figure 4",
            measure="ratio",
            cells={"method": M3G},
            high=1.5,
        )
    ]
    if len(views) > 1:
        claims.append(
            Trend(
                text="The overhead of M3G rises with k, as its cost n^k does",
                source="Section 6.2",
                measure="ratio",
                cells={"method": M3G},
                along="k",
            )
        )
    return Study(
        title="Piran 2024, Figure 4: time of a training step by number of views",
        about=_ABOUT + differences,
        cells=tuple(
            Cell(factors={"method": name, "k": k}, task=task(objective, k))
            for name, objective in _METHODS.items()
            for k in views
        ),
        measures=(
            Measure(name="ratio", label="time by that of pairwise InfoNCE", digits=2, better="lower"),
            Measure(name="milliseconds", label="step, ms", better="lower"),
            Measure(name="reference", label="step of pairwise InfoNCE, ms", better=""),
        ),
        claims=tuple(claims),
        reference={"method": AVERAGE},
        along="k",
        seeds=seeds,
        cost=cost,
    )
