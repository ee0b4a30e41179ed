"""Features of a whole split."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.tree_util import Partial


def encode(
    apply: Callable[[jax.Array], jax.Array],
    batches: Iterable[Mapping[str, Any]],
    *,
    batch_size: int,
    sharding: NamedSharding | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Features of every row of the batches, in the order of the data index.

    Every batch is padded to `batch_size` rows, so one program is compiled; the padding is dropped. A row that
    appears twice is kept once.

    Args:
      apply: pure function of inputs, arrays (b, ...), to features (b, d); it returns nothing else, so statistics cannot
        change. `jax.tree_util.Partial(function, parameters)` makes the parameters arguments of the compiled
        program: a second call with other values does not compile again. A plain closure makes them constants.
      batches: mappings with "inputs", an array or a pytree of arrays (b, ...), and "index" (b,), on the host, in any
        order; other keys are not read. In a run of several processes each passes its own rows and the same number of
        batches, empty ones (b = 0) where it has fewer.
      batch_size: rows of a batch over all processes and devices; b is at most this, divided by the processes.
      sharding: of the rows of a batch over the devices; None uses one device.

    Returns:
      (n, d) float32 features and the (n,) index of each row, ascending; every process gets all of them.
    """
    shards = 1 if sharding is None else _shards(sharding)
    if batch_size < 1 or batch_size % shards:
        raise ValueError(f"batch_size must be a positive multiple of {shards} devices, got {batch_size}")
    most = batch_size if sharding is None else batch_size // jax.process_count()
    function = apply if isinstance(apply, Partial) else Partial(apply)
    features, places = [], []
    for batch in batches:
        inputs, index = jax.tree.map(np.asarray, batch["inputs"]), np.asarray(batch["index"])
        lengths = {len(x) for x in jax.tree.leaves(inputs)}
        if lengths != {len(index)} or len(index) > most:
            raise ValueError(
                f'batches must have as many "inputs" as "index", at most {most} for batch_size={batch_size}, '
                f"got {', '.join(map(str, sorted(lengths)))} and {len(index)}"
            )
        real = np.arange(most) < len(index)
        rows = [jax.tree.map(lambda x: _pad(x, most), inputs), _pad(index, most), real]
        if sharding is not None:
            rows = jax.tree.map(lambda a: jax.make_array_from_process_local_data(sharding, a), rows)
        found = _features(function, rows[0])
        if found.ndim != 2 or found.shape[0] != batch_size:
            raise ValueError(
                f"apply must map inputs of {batch_size} rows to (b, d) features, got {found.shape}"
            )
        found, index, real = (multihost_utils.process_allgather(a, tiled=True) for a in (found, *rows[1:]))
        features.append(found[real].astype(np.float32))
        places.append(index[real])
    if not places:
        raise ValueError("batches must contain at least one batch, got none")
    index, order = np.unique(np.concatenate(places), return_index=True)
    return np.concatenate(features)[order], index


# The function is an argument: the parameters of a Partial are then arguments too, and calls share one cache.
_features = jax.jit(lambda function, inputs: function(inputs))


def _shards(sharding: NamedSharding) -> int:
    names = sharding.spec[0] if len(sharding.spec) else None
    names = (names,) if isinstance(names, str) else names or ()
    return math.prod(sharding.mesh.shape[name] for name in names)


def _pad(rows: np.ndarray, size: int) -> np.ndarray:
    return np.pad(rows, [(0, size - len(rows))] + [(0, 0)] * (rows.ndim - 1))
