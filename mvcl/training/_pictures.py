"""Training images and the views drawn from them, for the report."""

from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np

from mvcl import _files, _progress, data
from mvcl.training import _input
from mvcl.training._run import Run


def save_views(run: Run, path: Path, reading: data.Reading, count: int = 8) -> None:
    """Write the first readable training images and their views of epoch 0 as .npz, unless the file is there; nothing
    for given views.

    `views` is (m, k, side, side, C) uint8 with the side of the largest view; view v fills its first `sizes[v]` rows and
    columns, and the rest is zero.
    """
    split = run.splits["train"]
    if split.spec.given or path.is_file():
        return
    drawn_from = data.Reader(split, "train", reading, _input.training_crop(run))
    shown_as = data.Reader(split, "train", reading, _input.evaluation_crop(run))
    stream = drawn_from.readable(range(len(split)))
    with (
        closing(data.watched(stream, run.config.train.stall_seconds, reading)) as watched,
        _progress.during("reading images for the report"),
    ):
        readable = list(islice(watched, count))
    rows = np.asarray([row for row, _ in readable], np.int32)
    batch = drawn_from.batch(rows, [arrays for _, arrays in readable])
    with _progress.during("compiling the views"):
        drawn = run.program.views({**batch, "index": rows, "epoch": np.zeros(len(rows), np.int32)})
    each = drawn if isinstance(drawn, tuple) else np.moveaxis(np.asarray(drawn), 1, 0)
    policies = run.config.policies
    side = max(policy.image_size for policy in policies)
    views = np.zeros((len(rows), len(policies), side, side, split.spec.channels), np.uint8)
    for v, (view, policy) in enumerate(zip(each, policies, strict=True)):
        pixels = np.clip(np.asarray(view) * policy.std + policy.mean, 0, 1)
        views[:, v, : policy.image_size, : policy.image_size] = np.round(pixels * 255)
    images = shown_as.batch(rows, [arrays for _, arrays in shown_as.readable(rows)])["images"]
    if images.dtype != np.uint8:
        images = np.round(images * 255).astype(np.uint8)
    _files.save_arrays(
        path,
        images=images,
        views=views,
        sizes=np.asarray([policy.image_size for policy in policies]),
        view_names=np.asarray(run.config.view_names),
        labels=split.labels[rows],
        class_names=np.asarray(split.class_names),
    )
