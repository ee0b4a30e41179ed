"""What the studies on the bench share: a measure of all runs, so that they are shared; lengths; the scale smoke."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import _bench
import _conflict
import numpy as np

from mvcl import metrics, studies, training
from mvcl.studies import Baseline, Cell, Factors, Measure, Study, Training, Values
from mvcl.training import Config

STEPS = _bench.EPOCHS * (_bench.TRAIN // _bench.BATCH)  # of a run of the recipe
KNN, LINEAR = (measure.name for measure in _bench.MEASURES[:2])
GEOMETRY = (  # of `with_embeddings`
    Measure("rank", digits=1),
    Measure("effective rank", digits=1),
    Measure("uniformity, Wasserstein", digits=4, better="lower"),
    Measure("alignment", digits=3, better="lower"),
    *(Measure(name, digits=3, better="") for name in _conflict.MEASURES),
)


def with_embeddings(folder: Path) -> list[Values]:
    """`studies.results` and `embeddings`, for recipes that are not the bench."""
    [found] = studies.results(folder)
    return [found | embeddings(folder)]


def embeddings(folder: Path) -> Values:
    """What `mvcl embed --output head` measures of k random views of the test split, and the conflict of 1,000 images.

    Returns:
      "rank", "effective rank", "uniformity, Wasserstein" and "alignment" among others; of three views or more also
      `_conflict.MEASURES`.
    """
    run, state = training.open_run(folder, output="head")
    file = folder / "head.npz"
    _, measured = training.embed(run, state, "test", file, views=run.config.views.k)
    with np.load(file) as arrays:
        found = _conflict.conflict(arrays["features"][:1_000].swapaxes(0, 1))
    file.unlink()
    return {result.name: result.value for result in measured if result.value is not None} | found


def spent(folder: Path, reference_epochs: float = _bench.EPOCHS) -> Values:
    """The "updates" of a run, and its "relative compute": encoder passes by those of two views for so many epochs."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    epochs = max(line["epoch"] for line in lines if "epoch" in line)
    updates = json.loads((folder / "evaluation.json").read_text())["step"]
    views = training.load(folder).views.k
    return {"updates": updates, "relative compute": metrics.relative_compute(views, epochs, reference_epochs)}


def _measured(folder: Path) -> list[Values]:
    [found] = _bench.measured(folder)
    return [found | embeddings(folder) | spent(folder)]


def bench(data: Path, k: int = 2) -> Config:
    """The recipe for k views of the images in a file, .npz."""
    return _bench.bench_of(k, _bench.Images(path=str(data)))


def cell(factors: Factors, base: Config, changes: dict[str, Any] | None = None) -> Cell:
    """A cell of the recipe with changes, which measures embeddings and compute too, for any study."""
    return studies.trained(factors, base, changes, measure=_measured)


def lasting(steps: int = STEPS, images: int = _bench.BATCH) -> dict[str, Any]:
    """Changes of the recipe: so many steps of so many images; the recipe's own need none."""
    if (steps, images) == (STEPS, _bench.BATCH):
        return {}
    return {
        "train.steps": steps,
        "train.batch_size": images,
        "train.evaluate_every": 2 * steps / 3 / (_bench.TRAIN // images),
        "optimizer.warmup_epochs": 0.0,
        "optimizer.warmup_share": 1 / _bench.EPOCHS,
    }


def study(data: Path, cells: Sequence[Cell], about: str, **fields: Any) -> Study:
    """A study of cells on the bench, beside raw pixels, the untrained encoder, and training on labels."""
    levels = cells[0].factors
    none: Factors = {name: "" if isinstance(level, str) else 0 for name, level in levels.items()}
    hours = fields["seeds"] * sum(map(_seconds, cells)) / 3600 / 2
    return Study(
        **{
            "measures": _bench.MEASURES,
            "cost": f"{hours:.2g} hours on 2 cores, estimated from `pilot`; less where runs are shared",
            **fields,
            "cells": [*_bench.baselines(bench(data), none, next(iter(levels))), *cells],
            "about": f"{about}\n\n**Small scale.** Where nothing else is said above: {_bench.ABOUT}",
        }
    )


def _seconds(cell: Cell) -> float:
    """Of a core, the other one busy: 28 for the recipe's steps of 2 views, 56 of 4."""
    assert isinstance(cell.task, Training)
    views, train = cell.task.config.views, cell.task.config.train
    steps = round(train.epochs * (_bench.TRAIN // train.batch_size)) if train.steps is None else train.steps
    return 14 * views.k * train.batch_size / _bench.BATCH * steps / STEPS


def smoke(small: Callable[..., Study], count: int = 2) -> Callable[..., Study]:
    """The scale smoke of a study: some cells of its scale small, on random images with a tiny network."""

    def smoke(seeds: int = 2) -> Study:
        """Two steps of a tiny network on random images, some of the cells."""
        whole = studies.without_data(small)
        rest = [c for c in whole.cells if not isinstance(c.task, Baseline)]
        rest = [c for c in rest if "supervised" not in c.factors.values()]
        some = rest[:: max(1, len(rest) // count)][:count]
        cells = [dataclasses.replace(c, task=tiny(c.task)) for c in some]
        return dataclasses.replace(whole, cells=cells, claims=(), seeds=seeds, cost="seconds on 2 cores")

    return smoke


def tiny(task: Any) -> Any:
    """A training on the bench, or one like it, for two steps of a tiny network on random images."""
    config, small = task.config, _bench.smoke_of(task.config.views.k)
    changes = {"data": small.data, "encoder": small.encoder, "views.policy": small.views.policy}
    for name in ("steps", "evaluate_every", "batch_size", "log_every"):
        changes[f"train.{name}"] = getattr(small.train, name)
    changes |= {"train.group": 8} if config.train.group else {}
    changes |= {"method.queue": 16} if hasattr(config.method, "queue") else {}
    return dataclasses.replace(task, config=studies.changed(config, changes))
