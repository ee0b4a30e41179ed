"""Input of a run: shuffled batches for training, crops of images that differ in size, pictures for the report."""

from collections.abc import Generator
from contextlib import closing
from itertools import islice
from pathlib import Path

import jax
import numpy as np

from mvcl import _files, _progress, augment, data
from mvcl.training import _program
from mvcl.training._run import Run


def training_crop(run: Run) -> data.Crop | None:
    """Host crops of all views for images of different sizes; None if the device crops."""
    policies, seed = run.config.policies, run.config.train.seed

    def crop(arrays: data.Example, epoch: int, row: int) -> data.Example:
        return augment.host_crop(arrays if len(arrays) > 1 else arrays[0], policies, seed, epoch, row)

    return None if run.outline.spec.fixed else crop


def evaluation_crop(run: Run) -> data.Crop | None:
    """Host crop for evaluation, if training images differ in size. All splits use it: a program has one image size."""
    policy = _program.evaluation_policy(run.config, None)

    def crop(arrays: data.Example, epoch: int, row: int) -> data.Example:
        return augment.host_crop(arrays[0], [policy], 0, 0, 0)

    return None if run.outline.spec.fixed else crop


def batches(
    run: Run, first_step: int, reading: data.Reading | None = None
) -> Generator[data.Batch, None, None]:
    """The training batches of this process, from `first_step` on; closing the generator stops the readers.

    Raises:
      StalledReader: no batch came for train.stall_seconds.
      CorruptExample: more unreadable examples than `reading` allows (default: none).
    """
    config, reading = run.config, data.Reading() if reading is None else reading
    stream = data.batches(
        run.splits["train"],
        batch_size=config.examples,
        seed=config.train.seed,
        first_step=first_step,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        threads=config.train.threads,
        last_batch=run.program.learner.last_batch,
        crop=training_crop(run),
        reading=reading,
    )
    return data.watched(stream, config.train.stall_seconds, reading)


def save_views(run: Run, path: Path, reading: data.Reading, count: int = 8) -> None:
    """Write the first readable training images and their views of epoch 0 as .npz, unless the file is there; nothing
    for given views.

    `views` is (m, k, side, side, C) uint8 with the side of the largest view; view v fills its first `sizes[v]` rows and
    columns, and the rest is zero.
    """
    split = run.splits["train"]
    if split.spec.given or path.is_file():
        return
    stream = data.in_order(split, "train", batch_size=1, crop=training_crop(run), reading=reading)
    with (
        closing(data.watched(stream, run.config.train.stall_seconds, reading)) as watched,
        _progress.during("reading images for the report"),
    ):
        readable = list(islice((batch for batch in watched if len(batch["index"])), count))
    if not readable:
        return  # training says why
    batch = jax.tree.map(lambda *parts: np.concatenate(parts), *readable)
    rows, epoch = batch["index"].astype(np.int32), np.zeros(len(batch["index"]), np.int32)
    with _progress.during("compiling the views"):
        drawn = run.program.views({"images": batch["inputs"], "index": rows, "epoch": epoch})
    each = drawn if isinstance(drawn, tuple) else np.moveaxis(np.asarray(drawn), 1, 0)
    policies = run.config.policies
    side = max(policy.image_size for policy in policies)
    views = np.zeros((len(rows), len(policies), side, side, split.spec.channels), np.uint8)
    for v, (view, policy) in enumerate(zip(each, policies, strict=True)):
        pixels = np.clip(np.asarray(view) * policy.std + policy.mean, 0, 1)
        views[:, v, : policy.image_size, : policy.image_size] = np.round(pixels * 255)
    shown = data.in_order(
        split, "train", batch_size=len(rows), crop=evaluation_crop(run), reading=reading, rows=rows
    )
    images = next(shown)["inputs"]
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
