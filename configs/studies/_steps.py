"""Time and memory of training steps: programs that take steps in turn."""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from mvcl import _progress, data, training
from mvcl.studies import Values, changed

BATCHES = 20  # batches that the steps take in turn
QUIET = {"train.log_every": 10**6, "train.evaluate_every": 0}  # changes of a config whose steps are timed
_WARM_UP, _LEAST = 2, 5


def images(size: int, batch: int) -> data.Synthetic:
    """Random images of so many pixels, enough for `BATCHES`."""
    return data.Synthetic(image_size=size, examples=BATCHES * batch, classes=10)


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
    batches = data.to_devices(itertools.islice(host, BATCHES), run.program.batch_sharding)
    return Running(run.program, run.program.init(), list(batches))


def memory(run: Running) -> float:
    """MB of a compiled step, its arguments and temporaries, by XLA's analysis."""
    found = run.program.step.lower(run.state, run.batch).compile().memory_analysis()  # type: ignore[attr-defined]
    return (found.argument_size_in_bytes + found.temp_size_in_bytes) / 1e6


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
