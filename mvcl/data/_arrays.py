"""Images in one .npz file."""

import dataclasses
import io
import zipfile
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from mvcl import _buckets
from mvcl.data._classes import keep, select
from mvcl.data._images import encoded_split
from mvcl.data._splits import Split, in_memory


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

    def open(self) -> dict[str, Split]:
        """The splits `train` and `test`."""
        path = _buckets.local_copy(self.path)
        if not self.path or not path.is_file():
            raise ValueError(f"data.path must be an .npz file, got {self.path!r}")
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"data.path {self.path} is not a readable .npz file: {error}") from error
        aliases = {
            "x_train": "train_images",
            "y_train": "train_labels",
            "x_test": "test_images",
            "y_test": "test_labels",
        }
        arrays = {aliases.get(name, name): value for name, value in arrays.items()}
        if "images" in arrays and "labels" in arrays:
            test = np.arange(len(arrays["images"])) % 5 == 4
            for part, rows in (("train", ~test), ("test", test)):
                arrays[f"{part}_images"] = arrays["images"][rows]
                arrays[f"{part}_labels"] = arrays["labels"][rows]
        return {part: _array_split(arrays, part, self.path, self.classes) for part in ("train", "test")}


def _array_split(arrays: dict[str, np.ndarray], part: str, path: str, classes: Sequence[str]) -> Split:
    def get(name: str) -> np.ndarray:
        if f"{part}_{name}" not in arrays:
            raise ValueError(f"{path} has no array {part}_{name}; it has {', '.join(sorted(arrays))}")
        return arrays[f"{part}_{name}"]

    labels = get("labels").reshape(-1)
    if not np.issubdtype(labels.dtype, np.integer) or (len(labels) and labels.min() < 0):
        raise ValueError(f"{path}: {part}_labels must be integers >= 0, got {labels.dtype}")
    every = np.concatenate([arrays[k].reshape(-1) for k in ("train_labels", "test_labels") if k in arrays])
    count = int(every.max()) + 1 if len(every) else 0
    names = tuple(str(n) for n in arrays.get("class_names", np.arange(count)))
    if len(names) < count:
        raise ValueError(f"{path}: class_names has {len(names)} names for labels up to {count - 1}")
    kept = keep(names, classes)
    rows, kept_labels = select(labels.astype(np.int64), names, kept)
    if f"{part}_jpeg" in arrays:
        origin = f"{path} ({part})"
        encoded = _encoded(get("jpeg"), get("offsets"), rows, origin, len(labels))
        name = lambda row: f"image {rows[row]} of {origin}"  # noqa: E731
        return encoded_split(kept_labels, kept, encoded, name, origin)
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
    images = images[rows]
    return in_memory((images,), kept_labels, kept)


def _encoded(
    data: np.ndarray, offsets: np.ndarray, rows: np.ndarray, origin: str, count: int
) -> Callable[[int], io.BytesIO]:
    """row -> bytes of an image, among `count` concatenated files of which `rows` are kept."""
    sound = offsets.shape == (count + 1,) and offsets[-1] <= len(data) and (np.diff(offsets) >= 0).all()
    if not sound:
        raise ValueError(f"{origin}: offsets must be {count + 1} increasing positions in {len(data)} bytes")
    return lambda row: io.BytesIO(data[offsets[rows[row]] : offsets[rows[row] + 1]].tobytes())
