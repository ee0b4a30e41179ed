"""The interface of sources: splits, the specification of their examples, the choice of classes; sources by name."""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from PIL import Image

from mvcl import data
from mvcl._configs import hint


class CorruptExample(ValueError):
    """An example that cannot be read; the message names it."""


@contextmanager
def decoding(
    name: str, remedy: str = "repair or remove it", passing: type[Exception] = CorruptExample
) -> Iterator[None]:
    """Context of decoding an example: any error but `passing` becomes a `CorruptExample` with name and remedy."""
    try:
        yield
    except (CorruptExample, passing):
        raise
    except Exception as error:  # libraries raise any for damaged files
        words = " ".join(str(error).split())[:500] or type(error).__name__
        raise CorruptExample(f"{name} cannot be read ({words}); {remedy}") from error


@dataclasses.dataclass(frozen=True)
class ExampleSpec:
    """Specification of an example: one or more arrays, either its views or images that views are drawn from.

    Attributes:
      shapes: shape of each array. Images are (H, W, C); H and W are None if they differ between examples.
      view_names: name of each array: views, or the domains of images; may be empty.
      given: the arrays are the views, float32. Otherwise they are images, uint8 or float32 in [0, 1]: one image for all
        views, or one image per view.
    """

    shapes: tuple[tuple[int | None, ...], ...]
    view_names: tuple[str, ...] = ()
    given: bool = False

    def __post_init__(self) -> None:
        if not self.shapes or len(self.view_names) not in (0, len(self.shapes)):
            got = f"{self.view_names} and {self.shapes}"
            raise ValueError(f"view_names must be () or one name for each of shapes, at least one; got {got}")
        if self.given and any(None in shape for shape in self.shapes):
            raise ValueError(f"shapes of given views must be known; pad with NaN; got {self.shapes}")
        if not self.given and any(len(shape) != 3 or shape[2] is None for shape in self.shapes):
            raise ValueError(f"shapes of images must be (H, W, C) with a known C, got {self.shapes}")

    @property
    def views(self) -> int | None:
        """Number of views if the examples fix it; None if any number can be drawn from one image."""
        return len(self.shapes) if self.given or len(self.shapes) > 1 else None

    @property
    def view_shapes(self) -> tuple[tuple[int, ...], ...]:
        assert self.given
        return tuple(tuple(int(size or 0) for size in shape) for shape in self.shapes)

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(H, W, C) of all images; None if there are none, or sizes differ.

        Images of which it is None are cropped to one size on the host.
        """
        if self.given or len({*self.shapes}) > 1:
            return None
        height, width, channels = self.shapes[0]
        return None if height is None or width is None or channels is None else (height, width, channels)

    @property
    def channels(self) -> int:
        """C of images."""
        return int(self.shapes[0][-1] or 0)


@dataclasses.dataclass(frozen=True)
class Draws:
    """How a split draws its examples anew in every epoch.

    Attributes:
      size: rows of a block. The rows of a block are different instances; batches keep them together and in order.
      labels: (rows, epoch) -> the labels of rows in an epoch.
    """

    size: int
    labels: Callable[[np.ndarray, int], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Split:
    """The examples of one split. `len(split)` is N, their number.

    Attributes:
      labels: (N,) int32 class numbers, or float32 targets of a regression; those of epoch 0 with `draws`.
      class_names: name of each class; () for a regression.
      spec: specification of an example.
      read: (row, epoch) -> the arrays of an example, as specified by `spec`; raises `CorruptExample` if it cannot be
        read. Thread-safe. With `draws` a third argument, the attempt, 0 by default, chooses other arrays of the same
        label, for an example that cannot be read.
      encoded: arguments of `read` -> its images, each opened and not decoded, and the mode to read it in, L or RGB, for
        crops on the host; of a split of encoded images. An error of decoding is one of `read`, which then names the
        image.
      arrays: all N rows of each array, if they are in memory.
      present: (N, k) bool, False where a given view is missing, whose array may contain NaN; None: none is missing.
      groups: (N,) int32 subject or speaker of each example; held-out parts consist of whole groups.
      ids: identifier of each example, for tables of results.
      files: the file of each example, where each has one.
      name: row -> name of an example in messages; None: its split and row.
      side: median of the shorter sides of images of different sizes, in pixels; 0: not known.
      scaling: view name -> `shift`, subtracted from each column, and `scale`, which then divides it.
      draws: of a training split whose rows are drawn in blocks; None: a row is the same example in every epoch, and
        all rows are different instances.
    """

    labels: np.ndarray
    class_names: tuple[str, ...]
    spec: ExampleSpec
    read: Callable[..., tuple[np.ndarray, ...]]
    arrays: tuple[np.ndarray, ...] | None = None
    present: np.ndarray | None = None
    groups: np.ndarray | None = None
    ids: tuple[str, ...] = ()
    files: Sequence[Path] = ()
    name: Callable[[int], str] | None = None
    side: int = 0
    scaling: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    draws: Draws | None = None
    encoded: Callable[..., tuple[tuple[Image.Image, str], ...]] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def outline(self) -> "Outline":
        """The outline of this split."""
        size = self.spec.image_shape
        side = self.side if size is None else min(size[:2])
        return Outline(len(self), len(self.class_names), self.spec, self.present is not None, side)

    @property
    def named(self) -> list[str]:
        """The id, file or row of each example."""
        return list(self.ids) or list(map(str, self.files)) or list(map(str, range(len(self))))

    def digest(self) -> str:
        """16 hexadecimal digits of what is in the split: labels, ids, scaling and arrays in memory, of more than 1 GiB
        evenly spaced rows; of files that are not in memory their names, sizes and times."""
        stats = [(file.name, file.stat()) for file in (self.files if self.arrays is None else ())]
        files = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
        found = hashlib.sha256(repr((self.spec, self.class_names, self.ids, self.scaling, files)).encode())
        for array in (self.labels, self.present, self.groups, *(self.arrays or ())):
            if array is not None:
                rows = np.ascontiguousarray(array[:: array.nbytes // (1 << 30) + 1])
                found.update(rows.reshape(-1).view(np.uint8).data)
        return found.hexdigest()[:16]

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """These rows of each array at epoch 0, stacked; all must have one shape."""
        if self.arrays is not None:
            return tuple(array[rows] for array in self.arrays)
        return tuple(map(np.stack, zip(*(self.read(int(row), 0) for row in rows))))

    def only(self, rows: np.ndarray) -> "Split":
        """The split restricted to these rows, without the arrays: what an evaluation needs besides features."""
        if len(rows) == len(self):
            return self
        present, groups = (None if array is None else array[rows] for array in (self.present, self.groups))
        return dataclasses.replace(
            _of_others([self], lambda row, *_: [(self, rows[row])], self.labels[rows]),
            present=None if present is None or present.all() else present,
            groups=groups,
            ids=tuple(self.ids[row] for row in rows) if self.ids else (),
            files=[self.files[row] for row in rows] if self.files else (),
        )


@dataclasses.dataclass(frozen=True)
class Outline:
    """Numbers of training examples and of classes (0 for a regression), whether given views may be missing, and the
    side of images as in `Split`."""

    examples: int
    classes: int
    spec: ExampleSpec
    missing: bool = False
    side: int = 0


@runtime_checkable
class Source(Protocol):
    """Source of examples: a frozen dataclass of options with a method `open`.

    A method `expected`, which returns the published `Outline` of the training split or None, serves `--dry-run` without
    the data.
    """

    def open(self) -> Mapping[str, Split]:
        """The splits `train` and `test`, and others that an evaluation needs.

        Raises:
          ValueError: an option is invalid or the data are missing; the message says what to do.
        """


def expected(source: Source) -> Outline | None:
    """What the method `expected` of a source returns; None without one."""
    return source.expected() if hasattr(source, "expected") else None


def in_memory(
    arrays: tuple[np.ndarray, ...],
    labels: np.ndarray,
    class_names: tuple[str, ...],
    *,
    view_names: tuple[str, ...] = (),
    given: bool = False,
    **fields: Any,
) -> Split:
    """A split whose examples are rows of arrays in memory: of images (N, H, W, C), or (N, ...) of each view.

    `view_names` and `given` are as in `ExampleSpec`, all others fields of `Split`.

    Raises:
      ValueError: the numbers of rows differ.
    """
    if {len(array) for array in arrays} != {len(labels)}:
        got = ", ".join(str(len(array)) for array in arrays)
        raise ValueError(f"arrays must have one row for each of {len(labels)} labels, got {got}")
    spec = ExampleSpec(tuple(array.shape[1:] for array in arrays), view_names, given)
    fields |= {"read": lambda row, epoch: tuple(array[row] for array in arrays), "arrays": arrays}
    return Split(labels, class_names, spec, **fields)


def keep(names: tuple[str, ...], classes: Sequence[str]) -> tuple[str, ...]:
    """The names of the kept classes, in the order of the data; a single entry may name a bundled list or a text file.
    `ValueError` for an unknown name."""
    wanted = [*classes]
    if len(wanted) == 1:
        bundled = resources.files("mvcl.data") / "classes" / f"{wanted[0]}.txt"
        file = bundled if bundled.is_file() else Path(wanted[0])
        lines = file.read_text().splitlines() if file.is_file() else wanted
        wanted = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if unknown := [name for name in wanted if name not in names]:
        near = hint(unknown[0], names) or f"it has {', '.join(names[:10])}"
        raise ValueError(f"data.classes: {unknown[0]!r} is not a class of the data; {near}")
    return tuple(name for name in names if name in wanted) if wanted else names


def select(
    labels: np.ndarray, names: tuple[str, ...], kept: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the kept classes and their renumbered labels; the unknown label -1 is kept."""
    number = {name: i for i, name in enumerate(kept)}
    table = np.asarray([number.get(name, -1) for name in names], np.int32)
    new = np.where(labels < 0, -1, table[np.maximum(labels, 0)])
    rows = np.flatnonzero((new >= 0) | ((labels < 0) & (len(kept) == len(names))))
    return rows, new[rows]


def by_domain(
    lists: Mapping[str, Split], seen: tuple[str, ...], held_out: str, *, size: int | None, seed: int
) -> dict[str, Split]:
    """The splits `train`, `seen` and `test` of several domains, and their lists DOMAIN/train and DOMAIN/test.

    An example of `train` is one image of a class from each domain of `seen`. Each block of `size` rows is a draw of as
    many different classes, new in every epoch, of those that all these domains have; None: of them all. An epoch reads
    as many images as the domains have of these classes: it has images // k rows, a multiple of the size. The split
    `seen` has the training images of these domains; without a held-out domain `test` has all test images.

    Raises:
      ValueError: a draw is to have fewer than 2 classes, or more than there are.
    """
    domains, names = [lists[f"{domain}/train"] for domain in seen], lists[f"{seen[0]}/train"].class_names
    members = [[np.flatnonzero(split.labels == number) for number in range(len(names))] for split in domains]
    shared = [number for number in range(len(names)) if all(len(of[number]) for of in members)]
    if not shared:
        raise ValueError(f"no class has training images in each of the domains {', '.join(seen)}")
    size = len(shared) if size is None else size
    if not 2 <= size <= len(shared):
        most = f"at most the {len(shared)} classes that every training domain has"
        raise ValueError(f"data.classes_per_draw must be at least 2 and {most}, got {size}")

    # Hashes of these numbers, so that a draw does not depend on process, devices, time or order.
    @functools.lru_cache(1024)
    def block(number: int, epoch: int) -> np.ndarray:
        order = np.random.default_rng([seed, epoch, number, len(seen)]).permutation(len(shared))
        return np.asarray(shared, np.int32)[order[:size]]

    def labels(rows: np.ndarray, epoch: int) -> np.ndarray:
        return np.asarray([block(row // size, epoch)[row % size] for row in rows.tolist()], np.int32)

    def images(row: int, epoch: int, attempt: int) -> Iterator[tuple[Split, int]]:
        for view, (split, of) in enumerate(zip(domains, members)):
            those = of[block(row // size, epoch)[row % size]]
            order = np.random.default_rng([seed, epoch, row, view]).permutation(those)
            yield split, order[attempt % len(order)]

    count = sum(len(of[number]) for of in members for number in shared)
    rows = np.arange(size * max(1, count // (len(seen) * size)))
    spec = ExampleSpec(tuple(split.spec.shapes[0] for split in domains), seen)
    drawn = _of_others(domains, images, labels(rows, 0))
    train = dataclasses.replace(drawn, spec=spec, draws=Draws(size, labels))
    if not held_out:
        return {"train": train, "test": _joined([lists[f"{domain}/test"] for domain in seen]), **lists}
    return {"train": train, "seen": _joined(domains), "test": lists[f"{held_out}/test"], **lists}


def _joined(splits: Sequence[Split]) -> Split:
    """The examples of splits of the same kind, one split after the other."""
    places = [(split, row) for split in splits for row in range(len(split))]
    labels = np.concatenate([split.labels for split in splits])
    return _of_others(splits, lambda row, *_: [places[row]], labels)


def _of_others(splits: Sequence[Split], places: Callable[..., Iterable[Any]], labels: np.ndarray) -> Split:
    """A split whose examples are those of others: `places(row, epoch, attempt)` are their splits and rows."""

    def arrays(what: str, row: int, epoch: int, attempt: int = 0) -> tuple[Any, ...]:
        found = (getattr(split, what)(int(own), epoch) for split, own in places(row, epoch, attempt))
        return tuple(itertools.chain.from_iterable(found))

    read, encoded = (functools.partial(arrays, what) for what in ("read", "encoded"))
    opened = encoded if all(split.encoded for split in splits) else None
    return Split(labels, splits[0].class_names, splits[0].spec, read, encoded=opened)


SOURCES: dict[str, Callable[[], Source]] = {
    "digits": lambda: data.Digits(),
    "tfds": lambda: data.Tfds(),
    "folder": lambda: data.Folder(),
    "hugging_face": lambda: data.HuggingFace(),
    "arrays": lambda: data.Arrays(),
    "tables": lambda: data.Tables(),
    "digits_views": lambda: data.DigitsViews(),
    "domainnet": lambda: data.DomainNet(),
    "eeg": lambda: data.Eeg(),
    "sentiment": lambda: data.Sentiment(),
    "transfer": lambda: data.TransferImages(),
    "synthetic": lambda: data.Synthetic(),
}
"""Sources by the names that `data:NAME` chooses."""
PREPARERS: dict[str, Callable[[], type]] = {
    "eeg": lambda: data.PrepareEeg,
    "sentiment": lambda: data.PrepareSentiment,
    "transfer": lambda: data.PrepareTransfer,
}
"""What `mvcl data prepare NAME` runs for data sets that tfds does not prepare."""
