"""Features of a whole split."""

from collections.abc import Callable, Iterable, Mapping

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import Partial
from jax.typing import ArrayLike


def encode(
    apply: Callable[[jax.Array], jax.Array],
    batches: Iterable[Mapping[str, ArrayLike]],
    *,
    batch_size: int,
    mesh: Mesh | None = None,
    axis: str = "data",
) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a split, in the order of the data index.

    Every batch is padded to `batch_size` rows, so one program serves all; the padding is dropped again. A row
    that appears twice is kept once.

    Args:
      apply: pure function of images (b, ...) to features (b, d); it returns nothing else, so no statistics
        can move. `jax.tree_util.Partial(function, parameters)` makes the parameters arguments of the compiled
        program: a second call with other values does not compile again. A plain closure bakes them in.
      batches: mappings with "image" (b, ...), "label" (b,) and "index" (b,), b <= batch_size, in any order.
        In a run of several processes each passes its own rows and the same number of batches, empty ones
        (b = 0) where it has fewer.
      batch_size: rows per process, a multiple of this process's devices on `axis`.
      mesh: devices to spread the rows of a batch over; None stays on one device.
      axis: name of the mesh axis that the rows are split over.

    Returns:
      (n, d) float32 features and (n,) labels.
    """
    if mesh is not None and axis not in mesh.shape:
        raise ValueError(f"axis must be one of the mesh's {list(mesh.shape)}, got {axis!r}")
    devices = 1 if mesh is None else max(1, mesh.shape[axis] // jax.process_count())
    if batch_size < 1 or batch_size % devices:
        raise ValueError(f"batch_size must be a positive multiple of {devices} devices, got {batch_size}")
    function = apply if isinstance(apply, Partial) else Partial(apply)
    features, labels, index = [], [], []
    for batch in batches:
        image, label, place = (np.asarray(batch[key]) for key in ("image", "label", "index"))
        rows = len(image)
        if not rows == len(label) == len(place) <= batch_size:
            raise ValueError(
                "batches must hold image, label and index of equally many rows, at most "
                f"batch_size={batch_size}, got {rows}, {len(label)} and {len(place)}"
            )
        found = _features(function, _spread(_pad(image, batch_size), mesh, axis))
        if found.ndim != 2 or found.shape[0] % batch_size:
            raise ValueError(f"apply must map (b, ...) images to (b, d) features, got {found.shape}")
        found, label, place, real = (
            multihost_utils.process_allgather(a, tiled=True)
            for a in (found, _pad(label, batch_size), _pad(place, batch_size), np.arange(batch_size) < rows)
        )
        features.append(found[real].astype(np.float32))
        labels.append(label[real])
        index.append(place[real])
    if not index:
        raise ValueError("batches must hold at least one batch, got none")
    _, order = np.unique(np.concatenate(index), return_index=True)
    return np.concatenate(features)[order], np.concatenate(labels)[order]


# The function is an argument, so the parameters inside a Partial are too, and all calls share one cache.
_features = jax.jit(lambda function, images: function(images))


def _pad(rows: np.ndarray, size: int) -> np.ndarray:
    return np.pad(rows, [(0, size - len(rows))] + [(0, 0)] * (rows.ndim - 1))


def _spread(images: np.ndarray, mesh: Mesh | None, axis: str) -> jax.Array | np.ndarray:
    if mesh is None:
        return images
    return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec(axis)), images)
