"""Images in one .npz file."""

import dataclasses
import io
from collections.abc import Callable, Sequence

import numpy as np

from mvcl import _buckets, _untrusted
from mvcl._progress import Track, untracked
from mvcl.data._classes import keep, select
from mvcl.data._images import encoded_split
from mvcl.data._splits import Split, in_memory

_MOST_CLASSES = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arrays:
    """Images in one .npz file.

    Per split `train` and `test`: `train_images` (N, H, W) or (N, H, W, C), uint8 or floating in [0, 1], or the
    concatenated encoded files as `train_jpeg` (bytes, uint8) with `train_offsets` (N + 1,); and `train_labels` (N,)
    integers. `x_train`, `y_train`, `x_test`, `y_test` are accepted too. `class_names` is optional. With only `images`
    and `labels`, every fifth row is in the test split. The file is read without pickle.
    """

    path: str = ""
    """The .npz file."""
    classes: tuple[str, ...] = ()
    """Keep only these classes, as in the tfds source. Empty keeps all."""
    first: tuple[int, int] | None = None
    """Keep only the first so many images of train and of test; the others are not decoded. None keeps all."""

    def open(self, track: Track = untracked) -> dict[str, Split]:
        """The splits `train` and `test`."""
        path = _buckets.local_copy(self.path, track)
        if not self.path or not path.is_file():
            raise ValueError(f"data.path must be an .npz file, got {self.path!r}")
        with _untrusted.naming(self.path):
            return self._splits(_untrusted.read_npz(path, track=track), track)

    def _splits(self, arrays: dict[str, np.ndarray], track: Track) -> dict[str, Split]:
        aliases = {
            "x_train": "train_images",
            "y_train": "train_labels",
            "x_test": "test_images",
            "y_test": "test_labels",
        }
        arrays = {aliases.get(name, name): value for name, value in arrays.items()}
        if "images" in arrays and "labels" in arrays:
            images, labels = arrays["images"], arrays["labels"]
            if not (images.ndim and labels.ndim and len(images) == len(labels)):
                raise ValueError(
                    f"images and labels must have one row for each image, got {images.shape} and {labels.shape}"
                )
            test = np.arange(len(images)) % 5 == 4
            for part, rows in (("train", ~test), ("test", test)):
                arrays[f"{part}_images"] = images[rows]
                arrays[f"{part}_labels"] = labels[rows]
        limits = (None, None) if self.first is None else self.first
        return {
            part: _array_split(arrays, part, self.path, self.classes, limit, track)
            for part, limit in zip(("train", "test"), limits, strict=True)
        }


def _array_split(
    arrays: dict[str, np.ndarray],
    part: str,
    path: str,
    classes: Sequence[str],
    limit: int | None,
    track: Track,
) -> Split:
    def get(name: str) -> np.ndarray:
        if f"{part}_{name}" not in arrays:
            raise ValueError(f"{path} has no array {part}_{name}; it has {', '.join(sorted(arrays))}")
        return arrays[f"{part}_{name}"]

    labels = get("labels").reshape(-1)
    if not np.issubdtype(labels.dtype, np.integer) or (len(labels) and labels.min() < 0):
        raise ValueError(f"{path}: {part}_labels must be integers >= 0, got {labels.dtype}")
    every = [arrays[k].reshape(-1) for k in ("train_labels", "test_labels") if k in arrays]
    count = max((int(one.max()) + 1 for one in every if len(one)), default=0)
    if count > _MOST_CLASSES:
        raise ValueError(f"{path}: labels must be less than {_MOST_CLASSES}, got {count - 1}")
    names = tuple(str(n) for n in arrays.get("class_names", np.arange(count)).reshape(-1))
    if len(names) < count:
        raise ValueError(f"{path}: class_names has {len(names)} names for labels up to {count - 1}")
    kept = keep(names, classes)
    rows, kept_labels = select(labels.astype(np.int64), names, kept)
    rows, kept_labels = rows[:limit], kept_labels[:limit]
    if f"{part}_jpeg" in arrays:
        origin = f"{path} ({part})"
        if not len(rows):
            raise ValueError(f"{origin} has no images")
        encoded = _encoded(get("jpeg"), get("offsets"), rows, origin, len(labels))
        name = lambda row: f"image {rows[row]} of {origin}"  # noqa: E731
        return encoded_split(kept_labels, kept, encoded, name, origin, track)
    images = get("images")
    if images.ndim not in (3, 4):
        raise ValueError(f"{path}: {part}_images must be (N, H, W) or (N, H, W, C), got {images.shape}")
    if len(images) != len(labels):
        raise ValueError(f"{path}: {part} has {len(images)} images and {len(labels)} labels")
    images = images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8:
        if not np.issubdtype(images.dtype, np.floating):
            raise ValueError(f"{path}: {part}_images must be uint8 or floating in [0, 1], got {images.dtype}")
        if len(images) and not (images.min() >= 0 and images.max() <= 1):  # NaN fails too
            low, high = images.min(), images.max()
            raise ValueError(f"{path}: floating {part}_images must be in [0, 1], got {low} to {high}")
        images = images.astype(np.float32)
    images = images if len(rows) == len(images) else images[rows]
    return in_memory((images,), kept_labels, kept)


def _encoded(
    data: np.ndarray, offsets: np.ndarray, rows: np.ndarray, origin: str, count: int
) -> Callable[[int], io.BytesIO]:
    """row -> bytes of an image, among `count` concatenated files of which `rows` are kept."""
    if data.ndim != 1 or data.dtype != np.uint8:
        raise ValueError(
            f"{origin}: the encoded images must be (bytes,) uint8, got {data.shape} {data.dtype}"
        )
    sound = offsets.dtype.kind in "iu" and offsets.shape == (count + 1,)
    if not (sound and offsets[0] >= 0 and offsets[-1] <= len(data) and (offsets[1:] >= offsets[:-1]).all()):
        raise ValueError(f"{origin}: offsets must be {count + 1} increasing positions in {len(data)} bytes")
    return lambda row: io.BytesIO(data[offsets[rows[row]] : offsets[rows[row] + 1]].tobytes())
