"""Training images and the views drawn from them, for the report."""

from contextlib import closing
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
    drawn_from = data.Reader(split, "train", reading, _input.training_crop(run))
    shown_as = data.Reader(split, "train", reading, _input.evaluation_crop(run))
    stream = drawn_from.readable(range(len(split)))
    with closing(data.watched(stream, run.config.train.stall_seconds, reading)) as watched:
        readable = list(islice(watched, count))
    rows = np.asarray([row for row, _ in readable], np.int32)
    batch = drawn_from.batch(rows, [arrays for _, arrays in readable])
    drawn = np.asarray(run.program.views({**batch, "index": rows, "epoch": np.zeros(len(rows), np.int32)}))
    views = [drawn[:, v] * policy.std + policy.mean for v, policy in enumerate(run.config.policies)]
    images = shown_as.batch(rows, [arrays for _, arrays in shown_as.readable(rows)])["images"]
    if images.dtype != np.uint8:
        images = np.round(images * 255).astype(np.uint8)
    _files.save_arrays(
        path,
        images=images,
        views=np.round(np.clip(np.stack(views, axis=1), 0, 1) * 255).astype(np.uint8),
        labels=split.labels[rows],
        class_names=np.asarray(split.class_names),
    )
