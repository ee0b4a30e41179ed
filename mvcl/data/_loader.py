"""Batches whose content is a function of the step alone."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypedDict

import grain
import jax
import numpy as np
from jax.sharding import NamedSharding

from mvcl.data._sources import Split


class Batch(TypedDict):
    """n examples: `images` (n, H, W, C), or (n, k, H, W, C) when the crops were made on the host."""

    images: np.ndarray | jax.Array
    index: np.ndarray | jax.Array
    epoch: np.ndarray | jax.Array


def batches(
    split: Split,
    *,
    batch_size: int,
    seed: int,
    first_step: int = 0,
    process_index: int = 0,
    process_count: int = 1,
    threads: int = 4,
    crop: Callable[[np.ndarray, int, int], np.ndarray] | None = None,
) -> Iterator[Batch]:
    """Endless shuffled batches; this process gets its block of consecutive rows of each global batch.

    The order is one permutation an epoch, drawn from `seed`. An epoch is len(split) // batch_size steps; what is
    left over sits that epoch out, so that no batch holds an example twice, which would be its own negative. Any
    number of processes and threads sees the same global batches.

    Args:
      split: the examples.
      batch_size: rows of the global batch, a multiple of process_count.
      seed: seed of the order.
      first_step: step whose batch comes first.
      process_index: which block of rows is read here.
      process_count: how many processes share a batch.
      threads: batches that are read at once.
      crop: (image, epoch, index) -> (k, H, W, C), for images of different sizes.

    Raises:
      ValueError: batch_size is not a multiple of process_count, or larger than the split.
    """
    if batch_size % process_count:
        raise ValueError(
            f"train.batch_size must be a multiple of {process_count} processes, got {batch_size}"
        )
    if batch_size > len(split):
        raise ValueError(
            f"train.batch_size must be at most the {len(split)} training examples, got {batch_size}"
        )
    rows = batch_size // process_count
    steps_per_epoch = len(split) // batch_size

    def load(step: int, index: np.ndarray) -> Batch:
        mine = slice(process_index * rows, (process_index + 1) * rows)
        index = np.asarray(index)[mine].astype(np.int32)
        epoch = np.full(rows, step // steps_per_epoch, np.int32)
        if crop is None:
            images = split.take(index)
        else:
            images = np.stack([crop(split.read(int(i)), int(epoch[0]), int(i)) for i in index])
        return {"images": images, "index": index, "epoch": epoch}

    order = grain.MapDataset.range(len(split)).seed(seed).shuffle().batch(batch_size, drop_remainder=True)
    steps = order.repeat(None).map_with_index(load)[first_step:]
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(2 * threads, 1))
    yield from steps.to_iter_dataset(options)


def to_devices(stream: Iterator[Batch], sharding: NamedSharding, ahead: int = 2) -> Iterator[Batch]:
    """Global arrays over the devices of all processes, `ahead` batches early so that copies overlap compute."""

    def put(batch: Batch) -> Batch:
        return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, x), batch)

    waiting: deque[Batch] = deque()
    for batch in stream:
        waiting.append(put(batch))
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting
