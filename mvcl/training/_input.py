"""Input of a run: shuffled batches for training, splits in order for evaluation."""

from collections.abc import Generator

import jax

from mvcl import augment, data
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
