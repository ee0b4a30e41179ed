"""Batches whose content is a function of the step alone."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grain
import jax
import numpy as np
from jax.sharding import NamedSharding

from mvcl.data._reading import Reading
from mvcl.data._sources import CorruptExample, DomainSplit, Split, ViewSplit

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
    reading: Reading | None = None,
) -> Iterator[Batch]:
    """Endless shuffled batches; this process gets its block of consecutive rows of each global batch.

    The order is one permutation an epoch, drawn from `seed`. An epoch is len(split) // batch_size steps; what is
    left over sits that epoch out, so that no batch holds an example twice, which would be its own negative. Any
    number of processes and threads sees the same global batches. In place of an example that cannot be read comes one
    from outside the batch, drawn from seed, step and place alone; should two places in a small split draw the same, it
    appears twice.

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
      reading: takes note of what is read and of what cannot be; None allows no corrupt example.

    Raises:
      ValueError: batch_size is not a multiple of process_count, or larger than the split.
      CorruptExample: more examples cannot be read than `reading` allows.
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

    if isinstance(split, DomainSplit) and crop is None:
        raise ValueError("crop must be given for images of several domains, whose sizes differ")
    notes = Reading() if reading is None else reading
    kept: Any = split.views if isinstance(split, ViewSplit) else getattr(split, "images", None)
    in_memory = kept is not None and crop is None

    def load(step: int, index: np.ndarray) -> Batch:
        index, epoch = np.asarray(index), step // steps_per_epoch
        mine = index[process_index * rows : (process_index + 1) * rows].astype(np.int32)
        examples = None
        if not in_memory:
            first = process_index * rows
            read = [example(index, first + place, epoch, step) for place in range(rows)]
            mine = np.asarray([row for row, _ in read], np.int32)
            examples = [made for _, made in read]
        batch = {"labels": split.labels[mine], "index": mine, "epoch": np.full(rows, epoch, np.int32)}
        if isinstance(split, ViewSplit):
            views = None if examples is None else tuple(np.stack(view) for view in zip(*examples))
            return batch | given(split, mine, views)
        images = kept[mine] if examples is None else np.stack(examples)
        return batch | {"images": images}

    def example(index: np.ndarray, place: int, epoch: int, step: int) -> tuple[int, Any]:
        """Row and content of the example at a place of the global batch, or of the one that takes its place."""
        for row in _candidates(index, place, len(split), seed, step):
            try:
                with notes.at(named(split, "training", row)):
                    if isinstance(split, DomainSplit):
                        content: Any = split.read_views(row, epoch)
                    else:
                        content = split.read(row)
            except CorruptExample as error:
                notes.corrupt("train", row, step, error)
                continue
            return row, content if crop is None else crop(content, epoch, row)
        raise CorruptExample("none of the training examples can be read")

    order = grain.MapDataset.range(len(split)).seed(seed).shuffle().batch(batch_size, drop_remainder=True)
    steps = order.repeat(None).map_with_index(load)[first_step:]
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(2 * threads, 1))
    yield from steps.to_iter_dataset(options)


def named(split: Split | ViewSplit | DomainSplit, part: str, row: int) -> str:
    """What an example is called in messages: its file, where it has one."""
    name = getattr(split, "name", None)
    return f"{part} example {row}" if name is None else name(row)


def _candidates(index: np.ndarray, place: int, size: int, seed: int, step: int) -> Iterator[int]:
    """The row at a place of a batch, and those that may take its place, in an order that every process finds alike."""
    yield int(index[place])
    outside = np.setdiff1d(np.arange(size), index)
    if not len(outside):  # the batch is the whole split
        outside = np.delete(index, place)
    pool = np.random.default_rng((seed, step)).permutation(outside)
    # Places begin at different rows of the pool, so that two of them do not draw the same.
    yield from (int(row) for row in np.roll(pool, -place))


def given(split: ViewSplit, rows: np.ndarray, views: tuple[np.ndarray, ...] | None = None) -> Batch:
    """The views of these rows, zero where missing, and which are there if some are not."""
    views = split.take(rows) if views is None else views
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
