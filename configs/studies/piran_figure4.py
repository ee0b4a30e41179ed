"""Piran 2024, Figure 4: time of a training step with M3G by number of views k, beside pairwise InfoNCE.

Section 5: ViT-B/16 on ImageNet-1K (docs/how_to/data.md), student and teacher, 64 examples a device. No training:
steps of two programs in turn. `python -m benchmarks.overhead` has other sizes, and the passes of the solver.
"""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import _digits
import jax

from mvcl import _progress, augment, data, losses, studies, training
from mvcl.studies import Cell, Measure, Study, Trend, Values, Within, changed
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


_WARM_UP, _LEAST, _BATCHES = 2, 5, 20


def _clock() -> float:
    """Seconds: on a CPU those that this process has computed, which other processes change least."""
    return time.process_time() if jax.default_backend() == "cpu" else time.perf_counter()


@dataclasses.dataclass
class Running:
    """A run's program, its state and some batches, which it takes in turn."""

    program: training.Program
    state: Any
    batches: list[Any]
    steps: int = 0

    @property
    def batch(self) -> Any:
        """The batch of the next step."""
        return self.batches[self.steps % len(self.batches)]

    def step(self) -> tuple[float, dict[str, jax.Array]]:
        """Seconds of one step, and the values that it logs."""
        start = _clock()
        self.state, values = self.program.step(self.state, self.batch)
        values = jax.block_until_ready(values)
        self.steps += 1
        return _clock() - start, values


def running(config: training.Config) -> Running:
    """A config's program at its first state, with batches of its training split on the devices."""
    run = training.prepare(config)
    host = data.batches(run.splits["train"], batch_size=run.config.examples, seed=config.train.seed)
    batches = data.to_devices(itertools.islice(host, _BATCHES), run.program.batch_sharding)
    return Running(run.program, run.program.init(), list(batches))


def turns(runs: Mapping[str, Running], budget: float) -> dict[str, list[float]]:
    """Seconds of each run's steps, in turns for about `budget` seconds, after compilation.

    The run that begins a turn is another in each.

    Args:
      runs: by name.
      budget: seconds; there are at least 5 turns.
    """
    for run in runs.values():
        for _ in range(_WARM_UP):
            run.step()
    found: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + budget
    for turn in itertools.count():
        if turn >= _LEAST and time.perf_counter() > end:
            break
        for name in [*runs, *runs][turn % len(runs) :][: len(runs)]:
            found[name].append(runs[name].step()[0])
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTime:
    """Time of a training step by that of a reference, whose steps it takes turns with; a `Task`.

    On a CPU times are those of computation by the process, on other devices those of a clock.
    """

    config: training.Config
    reference: training.Config
    seconds: float = 30.0
    """For the turns, after compilation."""

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """ "ratio", the median over the turns of the ratio of the two times; the medians in milliseconds."""
        of_seed = {"train.seed": seed}
        runs = {
            name: running(changed(config, of_seed))
            for name, config in (("of this", self.config), ("reference", self.reference))
        }
        with _progress.during("timing steps"):
            mine, other = turns(runs, self.seconds).values()
        return [
            {
                "ratio": statistics.median(a / b for a, b in zip(mine, other, strict=True)),
                "milliseconds": 1e3 * statistics.median(mine),
                "reference": 1e3 * statistics.median(other),
            }
        ]


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
    base = _digits.vectors_of(2)
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
            "M3G incurs a minor overhead (here: a step takes at most 1.5 times as long)",
            "Section 5, Figure 4",
            "ratio",
            {"method": M3G},
            high=1.5,
        )
    ]
    if len(views) > 1:
        claims.append(
            Trend(
                "The overhead of M3G rises with k, as its cost n^k does",
                "Section 6.2",
                "ratio",
                {"method": M3G},
                "k",
            )
        )
    return Study(
        title="Piran 2024, Figure 4: time of a training step by number of views",
        about=_ABOUT + differences,
        cells=tuple(
            Cell({"method": name, "k": k}, task(objective, k))
            for name, objective in _METHODS.items()
            for k in views
        ),
        measures=(
            Measure("ratio", label="time by that of pairwise InfoNCE", digits=2, better="lower"),
            Measure("milliseconds", label="step, ms", better="lower"),
            Measure("reference", label="step of pairwise InfoNCE, ms", better=""),
        ),
        claims=claims,
        reference={"method": AVERAGE},
        along="k",
        seeds=seeds,
        cost=cost,
    )
