"""The work of a study's cell."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mvcl import training
from mvcl._progress import Progress
from mvcl.training import Config

Values = dict[str, float]
"""Values of the measures of one run, by name."""


class Task(Protocol):
    """The work of a cell, a frozen dataclass: its fields decide whether a finished cell is still valid."""

    def run(self, folder: Path, seed: int, progress: Progress) -> Sequence[Values]:
        """Do the work and return what was measured.

        Args:
          folder: for its files; called again after a kill, it goes on with what is there.
          seed: of all random draws.
          progress: reports on the work.

        Returns:
          Measure name -> value, an entry for each network that was trained side by side, usually one.
        """


def results(folder: Path) -> list[Values]:
    """The results of a finished run, of evaluation.json and metrics.jsonl.

    Returns:
      One entry: the results of the trained encoder under their names; those of the untrained encoder and the raw input
      under "untrained encoder: NAME" and "raw input: NAME"; "loss", the mean over the logged steps of the last epoch.
    """
    content = json.loads((folder / "evaluation.json").read_text())
    found: Values = {}
    for row, measured in content["rows"].items():
        prefix = "" if row == "trained encoder" else f"{row}: "
        found |= {
            prefix + result["name"]: result["value"] for result in measured if result["value"] is not None
        }
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "loss" in line]
    last = [line["loss"] for line in logged if line["epoch"] > logged[-1]["epoch"] - 1]
    return [found | {"loss": float(np.mean(last))}]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """A run of `training.train`; a `Task`."""

    config: Config
    """The experiment."""
    seeded: tuple[str, ...] = ("train.seed",)
    """Its fields, by dotted name, that are replaced by the seed of the cell."""
    measure: Callable[[Path], Sequence[Values]] = results
    """What is measured of the finished run folder."""

    def run(self, folder: Path, seed: int, progress: Progress) -> Sequence[Values]:
        """Train, or resume, and measure."""
        training.train(changed(self.config, dict.fromkeys(self.seeded, seed)), folder)
        return self.measure(folder)


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """The config with values replaced by dotted field names.

    Args:
      config: the experiment.
      changes: {"views.k": 4, "train.epochs": 20.0, "objective": losses.mv_dhel}.

    Raises:
      ValueError: there is no such field.
    """
    for name, value in changes.items():
        config = training.replace_at(config, name.split("."), value)
    return config
