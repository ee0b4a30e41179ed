"""Batches whose content is a function of the step alone."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grain
import jax
import numpy as np
from jax.sharding import NamedSharding

from mvcl.data._sources import DomainSplit, Split, ViewSplit

# n examples: `labels`, `index` and `epoch` (n,), and `images` (n, H, W, C), or (n, k, H, W, C) when the crops were made
# on the host; or `views`, a tuple of k arrays (n, ...), with `present` (n, k) where examples may lack views.
Batch = dict[str, Any]


def batches(
    split: Split | ViewSplit | DomainSplit,
    *,
    batch_size: int,
    seed: int,
    first_step: int = 0,
    process_index: int = 0,
    process_count: int = 1,
    threads: int = 4,
    crop: Callable[[Any, int, int], np.ndarray] | None = None,
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
      crop: (image, epoch, index) -> (k, H, W, C), for images of different sizes; of several domains it gets the list
        of an example's k images.

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
        batch = {"labels": split.labels[index], "index": index, "epoch": epoch}
        if isinstance(split, ViewSplit):
            return batch | given(split, index)
        if isinstance(split, DomainSplit):
            if crop is None:
                raise ValueError("crop must be given for images of several domains, whose sizes differ")
            first = int(epoch[0])
            rows_of_views = [split.read_views(int(i), first) for i in index]
            images = np.stack([crop(views, first, int(i)) for views, i in zip(rows_of_views, index)])
        elif crop is None:
            images = split.take(index)
        else:
            images = np.stack([crop(split.read(int(i)), int(epoch[0]), int(i)) for i in index])
        return batch | {"images": images}

    order = grain.MapDataset.range(len(split)).seed(seed).shuffle().batch(batch_size, drop_remainder=True)
    steps = order.repeat(None).map_with_index(load)[first_step:]
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(2 * threads, 1))
    yield from steps.to_iter_dataset(options)


def given(split: ViewSplit, rows: np.ndarray) -> Batch:
    """The views of these rows, zero where missing, and which are there if some are not."""
    views = split.take(rows)
    if split.present is None:
        return {"views": views}
    there = split.present[rows]
    shown = tuple(
        np.where(there[:, l].reshape((-1,) + (1,) * (view.ndim - 1)), view, 0).astype(view.dtype)
        for l, view in enumerate(views)
    )
    return {"views": shown, "present": there}


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
