"""Batches: shuffled for training, as a function of the step; or every example once, in order."""

import contextlib
import dataclasses
import functools
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar, cast

import grain
import jax
import numpy as np
from jax.sharding import NamedSharding

from mvcl.data._splits import CorruptExample, Split, decoding

Batch = dict[str, Any]
"""Arrays of n examples by name: `labels`, `index` and `epoch` (n,), and `images` (n, H, W, C), (n, k, H, W, C) of k
images an example, or a tuple of k arrays (n, size, size, C) when the crops were made on the host; or `views`, a tuple
of k arrays (n, ...), with `present` (n, k) where examples may lack views."""
Example = tuple[np.ndarray, ...]
"""Arrays of one example, in the order of its specification."""
# How often an example of a split with draws is drawn before the run stops.
_ATTEMPTS = 16
Crop = Callable[[Sequence[Any], int, int], Example]
"""(arrays of an example, or its opened images and their modes; epoch, row) -> one or k crops (H, W, C) on the host, of
the same sizes for all examples."""
T = TypeVar("T")


@dataclasses.dataclass
class Reading:
    """What is being read in each thread, and the corrupt examples of this process; thread-safe.

    Up to `limit` corrupt examples are skipped in a run, each counted once; one more raises `CorruptExample`.

    Attributes:
      passed: rows of corrupt training examples, those of a resumed run too.
      busy: of each thread that reads, the name of the example and when its reading began.
    """

    limit: int = 0
    passed: set[int] = dataclasses.field(default_factory=set)
    busy: dict[int, tuple[str, float]] = dataclasses.field(default_factory=dict, init=False)
    _found: set[tuple[str, int]] = dataclasses.field(default_factory=set, init=False)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, init=False)

    def read(
        self, split: Split, part: str, row: int, crop: Crop | None, epoch: int = 0, attempt: int = 0
    ) -> Example | None:
        """The arrays of an example, or its crops; None if it cannot be read, which is counted.

        `part` is the split's name in messages; later attempts are of splits that draw their examples.
        """
        name = f"{part} example {row}" if split.name is None else split.name(row)
        thread = threading.get_ident()
        self.busy[thread] = (name, time.monotonic())
        drawn = (row, epoch) if split.draws is None else (row, epoch, attempt)
        try:
            if crop is not None and split.encoded is not None:
                try:
                    with decoding(name), contextlib.ExitStack() as files:
                        images = split.encoded(*drawn)
                        for image, _ in images:
                            files.enter_context(image)
                        return crop(images, epoch, row)
                except CorruptExample:
                    split.read(*drawn)  # names the image, one of several
                    raise
            arrays = split.read(*drawn)
        except CorruptExample as error:
            with self._lock:
                new = (part, row) not in self._found
                self._found.add((part, row))
                if part == "train":
                    self.passed = self.passed | {row}  # another thread may be reading it
                count = len(self._found | {("train", known) for known in self.passed})
            if count > self.limit:
                limit = f"this is corrupt example {count}, and --train.corrupt-limit is {self.limit}"
                raise CorruptExample(f"{error}; {limit}") from error
            if new:
                print(f"mvcl: skipped a corrupt example: {error}", file=sys.stderr)
            return None
        finally:
            del self.busy[thread]
        return arrays if crop is None else crop(arrays, epoch, row)

    def longest(self) -> str:
        """The longest current read, in words."""
        busy = sorted((since, name) for name, since in list(self.busy.values()))
        if not busy:
            return "no example is being read"
        return f"{busy[0][1]} has been read for {time.monotonic() - busy[0][0]:.0f} s"


def _read(
    split: Split, rows: np.ndarray, examples: Iterable[tuple[int, Example | None]], crop: Crop | None
) -> tuple[np.ndarray, Batch]:
    """Rows and their inputs: from memory, or of those `examples`, at most as many as `rows`, that can be read, each
    copied to its place in the batch as soon as it is read; without one, 0 rows of the shapes of examples."""
    if split.arrays is not None and crop is None:
        return rows, inputs(split, rows)
    read: list[int] = []
    whole: Example = ()
    for row, arrays in examples:
        if arrays is None:
            continue
        whole = whole or tuple(np.empty((len(rows), *array.shape), array.dtype) for array in arrays)
        for place, array in zip(whole, arrays, strict=True):
            place[len(read)] = array
        read.append(row)
    if not read:
        dtype = np.float32 if split.spec.given else np.uint8
        one = tuple(np.zeros([size or 8 for size in shape], dtype) for shape in split.spec.shapes)
        whole = tuple(array[None] for array in (one if crop is None else crop(one, 0, 0)))
    rows = np.asarray(read, rows.dtype)
    return rows, inputs(split, rows, tuple(place[: len(read)] for place in whole))


def inputs(split: Split, rows: np.ndarray, arrays: tuple[np.ndarray, ...] | None = None) -> Batch:
    """The inputs of a step for these rows: `images`; or `views`, zero where missing, with `present` if they may be."""
    arrays = split.take(rows) if arrays is None else arrays
    if not split.spec.given:
        if len(arrays) == 1:
            return {"images": arrays[0]}
        return {"images": np.stack(arrays, axis=1) if split.spec.image_shape else arrays}
    if split.present is None:
        return {"views": arrays}
    present = split.present[rows]
    views = tuple(view.copy() for view in arrays)
    for view, here in zip(views, present.T):
        view[~here] = 0
    return {"views": views, "present": present}


def batches(
    split: Split,
    *,
    batch_size: int,
    seed: int,
    first_step: int = 0,
    process_index: int = 0,
    process_count: int = 1,
    threads: int = 4,
    last_batch: bool = False,
    crop: Crop | None = None,
    reading: Reading | None = None,
    multiple: int = 1,
) -> Iterator[Batch]:
    """Infinite shuffled batches; this process gets its block of consecutive rows of each global batch.

    The order is one permutation per epoch, drawn from `seed`; of blocks, where the split draws its examples in blocks,
    as far as the batch holds them whole. The examples left at the end of an epoch are not used, or are a smaller last
    batch: an example that is twice in a batch would be its own negative. The global batches do not depend on the number
    of processes and threads. An unreadable example is replaced by one from outside the batch, drawn from seed, step and
    place (in a small split maybe twice the same); where the split draws its examples, by another of its label.

    Args:
      batch_size: rows of the global batch, a multiple of process_count.
      threads: number of batches read in parallel.
      last_batch: whether the examples that are left at the end of an epoch are a batch.
      crop: for images of different sizes.
      reading: records what is being read and the corrupt examples; None allows no corrupt example.

    Raises:
      ValueError: batch_size is not a multiple of process_count, or larger than the split; or crop is missing.
      CorruptExample: more corrupt examples than `reading` allows.
    """
    if multiple % process_count and batch_size % process_count:
        raise ValueError(f"batch_size must be a multiple of {process_count} processes, got {batch_size}")
    if batch_size > len(split):
        raise ValueError(f"batch_size must be at most the {len(split)} training examples, got {batch_size}")
    if crop is None and not split.spec.given and split.spec.image_shape is None:
        raise ValueError(f"crop must be given for images whose sizes differ, of shapes {split.spec.shapes}")
    steps_per_epoch = epoch_steps(len(split), batch_size, last_batch=last_batch)
    draws, reading = split.draws, Reading() if reading is None else reading
    unit = 1 if draws is None else math.gcd(draws.size, batch_size)  # rows that come from one block

    @functools.lru_cache(2)  # what is read ahead may be of the next epoch
    def order(epoch: int) -> np.ndarray:
        return np.random.default_rng((seed, epoch, 1)).permutation(len(split) // unit)

    def load(step: int, place: int) -> Batch:
        epoch = step // steps_per_epoch
        units = order(epoch)[place * batch_size // unit : (place + 1) * batch_size // unit]
        index = (units[:, None] * unit + np.arange(unit)).reshape(-1)
        index = np.concatenate([index, np.resize(index, -len(index) % multiple)])
        rows = len(index) // process_count
        first = process_index * rows
        examples = (example(index, first + place, epoch, step) for place in range(rows))
        mine, found = _read(split, index[first : first + rows].astype(np.int32), examples, crop)
        labels = split.labels[mine] if draws is None else draws.labels(mine, epoch)
        return {"labels": labels, "index": mine, "epoch": np.full(rows, epoch, np.int32)} | found

    def example(index: np.ndarray, place: int, epoch: int, step: int) -> tuple[int, Example]:
        """Row and arrays of the example at a place of the global batch, or of its replacement."""
        tries: Iterable[tuple[int, int]] = enumerate([int(index[place])] * _ATTEMPTS)
        if draws is None:
            tries = ((0, int(row)) for row in _candidates(index, place, len(split), seed, step))
        for attempt, row in tries:
            if (arrays := reading.read(split, "train", row, crop, epoch, attempt)) is not None:
                return row, arrays
        drawn = "replacements" if draws is None else f"{_ATTEMPTS} draws"
        raise CorruptExample(f"none of the {drawn} for training example {index[place]} can be read")

    steps = grain.MapDataset.range(steps_per_epoch).repeat(None).map_with_index(load)[first_step:]
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(2 * threads, 1))
    yield from steps.to_iter_dataset(options)


def epoch_steps(examples: int, batch_size: int, *, last_batch: bool) -> int:
    """Steps of an epoch, with or without a smaller last batch."""
    return -(-examples // batch_size) if last_batch else examples // batch_size


def in_order(
    split: Split,
    part: str,
    *,
    batch_size: int,
    process_index: int = 0,
    process_count: int = 1,
    crop: Crop | None = None,
    reading: Reading | None = None,
    rows: np.ndarray | None = None,
) -> Iterator[Batch]:
    """Every readable example once, or those of `rows`; each process reads its share, in as many batches as the others.

    `part` is the split's name in messages; the other arguments are those of `batches`, and so is `CorruptExample`. The
    last batch may be smaller.

    Yields:
      `index` (b,), the rows, and `inputs`: images (b, H, W, C), a tuple of such arrays for several crops, or a mapping
      of `views` and `present`.
    """
    reading = Reading() if reading is None else reading
    every = np.arange(len(split)) if rows is None else rows
    share = batch_size // process_count
    for start in range(0, len(every), batch_size):
        first = start + process_index * share
        wanted = every[first : first + share]
        examples = ((row, reading.read(split, part, row, crop)) for row in wanted.tolist())
        index, batch = _read(split, wanted, examples, crop)
        yield {"inputs": batch if split.spec.given else batch["images"], "index": index}


def _candidates(index: np.ndarray, place: int, size: int, seed: int, step: int) -> Iterator[int]:
    """The row at a place of a batch, then its replacements, in an order that is the same in every process."""
    yield index[place]
    outside = np.setdiff1d(np.arange(size), index)
    if not len(outside):  # the batch is the whole split
        outside = np.delete(index, place)
    pool = np.random.default_rng((seed, step)).permutation(outside)
    # Places start at different rows of the pool, so that two of them draw different rows.
    yield from np.roll(pool, -place)


def to_devices(stream: Iterable[Batch], sharding: NamedSharding) -> Iterator[Batch]:
    """Global arrays over the devices of all processes."""
    put = functools.partial(jax.make_array_from_process_local_data, sharding)
    return (jax.tree.map(put, batch) for batch in stream)


def watched(
    stream: Iterator[T], seconds: float, reading: Reading, ahead: int = 1
) -> Generator[T, None, None]:
    """The items of a stream, made in another thread, up to `ahead` before they are asked for; `seconds` 0 is no limit.

    Raises:
      RuntimeError: an item took longer than `seconds`; the message says what `reading` has recorded.
    """
    end, pool = object(), ThreadPoolExecutor(1, "mvcl reader")
    following = deque(pool.submit(next, stream, end) for _ in range(ahead))
    try:
        while wait([following[0]], seconds or None).done:
            if (item := following.popleft().result()) is end:
                return
            following.append(pool.submit(next, stream, end))
            yield cast(T, item)
        what = f"no batch for {seconds:g} s (--train.stall-seconds): {reading.longest()}"
        how = "Check that file and its disk or network"
        raise RuntimeError(f"{what}. {how}; repeat the command to resume from the newest checkpoint")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
