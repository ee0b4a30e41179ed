"""Cells of what was not trained: the raw input, and the encoder with its initial parameters."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from mvcl import training
from mvcl._progress import Progress
from mvcl.studies._task import Values, changed, results
from mvcl.training import Config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """What the evaluation of a run measures beside the trained encoder; a `Task`."""

    config: Config
    """A run of the study, with an evaluation that has `baselines`; it is trained for one step."""
    row: Literal["raw input", "untrained encoder"]
    """Which of the two. The raw input is the same for every seed."""

    def run(self, folder: Path, seed: int, progress: Progress) -> Sequence[Values]:
        """Train one step, and return the results of the row under their names."""
        one_step = {"train.seed": seed, "train.steps": 1, "train.log_every": 1, "evaluation.baselines": True}
        training.train(changed(self.config, one_step), folder)
        [found] = results(folder)
        prefix = f"{self.row}: "
        return [
            {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
        ]
