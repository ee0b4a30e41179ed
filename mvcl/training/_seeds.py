"""A config trained once per seed."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mvcl import _progress, evaluation
from mvcl.training._config import Config
from mvcl.training._evaluate import Table
from mvcl.training._loop import train


def train_seeds(
    config: Config,
    folder: Path,
    seeds: int = 3,
    *,
    reference: Config | None = None,
    page: Callable[[], Path] | None = None,
) -> Table:
    """Train a config once per seed, each in its own folder, and average the evaluation tables.

    Args:
      config: the experiment; its train.seed is the first seed.
      folder: parent of the run folders `seed0`, `seed1`, ...; existing runs are resumed, finished ones are read.
      seeds: number of runs.
      reference: a config with the functions and classes of the user's own that the run of train.initial uses.
      page: as for `train`, for all seeds.

    Returns:
      The evaluation table: row name -> results, mean and standard deviation over seeds.

    Raises:
      ValueError: as `train`, or seeds is less than 1.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    tables = []
    for seed in _progress.track(range(config.train.seed, config.train.seed + seeds), "seed", seeds, "seeds"):
        of_seed = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
        tables.append(train(of_seed, folder / f"seed{seed}", reference=reference, page=page))
    return {
        row: [_mean(results) for results in zip(*(table[row] for table in tables), strict=True)]
        for row in tables[0]
    }


def _mean(results: tuple[evaluation.Result, ...]) -> evaluation.Result:
    values = [result.value for result in results if result.value is not None]
    if len(values) < len(results):
        return next(result for result in results if result.value is None)
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    protocol = f"{results[0].protocol}, mean and standard deviation of {len(values)} seeds"
    return evaluation.Result(
        results[0].name, float(np.mean(values)), deviation, protocol, better=results[0].better
    )
