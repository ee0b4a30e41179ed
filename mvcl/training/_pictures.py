"""Training images and the views drawn from them, for the report."""

from itertools import islice
from pathlib import Path

import numpy as np

from mvcl import _files, data
from mvcl.training import _input
from mvcl.training._run import Run


def save_views(run: Run, path: Path, reading: data.Reading, count: int = 8) -> None:
    """Write the first readable training images and their views of epoch 0 as .npz; nothing for given views."""
    split = run.splits["train"]
    if split.spec.given:
        return
    for_training = data.Reader(split, "train", reading, _input.training_crop(run))
    for_evaluation = data.Reader(split, "train", reading, _input.evaluation_crop(run))
    readable = list(islice(for_training.readable(range(len(split))), count))
    rows = np.asarray([row for row, _ in readable], np.int32)
    batch = for_training.batch(rows, [arrays for _, arrays in readable])
    drawn = np.asarray(run.program.views({**batch, "index": rows, "epoch": np.zeros(len(rows), np.int32)}))
    views = [drawn[:, v] * policy.std + policy.mean for v, policy in enumerate(run.config.policies)]
    images = for_evaluation.batch(rows, [arrays for _, arrays in for_evaluation.readable(rows)])["images"]
    if images.dtype != np.uint8:
        images = np.round(images * 255).astype(np.uint8)
    _files.save_arrays(
        path,
        images=images,
        views=np.round(np.clip(np.stack(views, axis=1), 0, 1) * 255).astype(np.uint8),
        labels=split.labels[rows],
        class_names=np.asarray(split.class_names),
    )
