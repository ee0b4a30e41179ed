"""Features of a run's splits."""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import _files, _progress, data, evaluation
from mvcl.training import _input, _program
from mvcl.training._run import Run

Features = dict[str, np.ndarray]


def encode(
    run: Run, state: _program.State, splits: tuple[str, ...] | None = None
) -> tuple[Features, Features]:
    """Features and labels of splits; None encodes the splits that the evaluation needs."""
    reading = data.Reading(run.config.train.corrupt_limit)
    features, readable = encode_readable(run, state, splits, reading)
    return features, {name: split.labels for name, split in readable.items()}


def encode_readable(
    run: Run,
    state: _program.State,
    splits: tuple[str, ...] | None,
    reading: data.Reading,
    row: str = "encoder",
) -> tuple[Features, dict[str, data.Split]]:
    """Features of the readable examples of splits, and the splits restricted to these examples.

    Args:
      run, state: the run, and the state whose encoder is used.
      splits: names of splits; None: those that the evaluation needs.
      reading: counts unreadable examples.
      row: name of the encoder in reports.
    """
    program, options = run.program, run.config.evaluation
    splits = options.splits(tuple(run.splits)) if splits is None else splits
    apply = jax.tree_util.Partial(program.apply, *program.evaluated(state))
    size = -(-options.batch_size // program.mesh.size) * program.mesh.size
    sharding = program.batch_sharding if program.mesh.size > 1 else None
    features, readable = {}, {}
    for name in splits:
        check_split(run, name)
        stream = tracked(run, name, size, reading, row)
        features[name], index = evaluation.encode(apply, stream, batch_size=size, sharding=sharding)
        readable[name] = run.splits[name].only(index)
    return features, readable


def tracked(run: Run, name: str, size: int, reading: data.Reading, row: str) -> Iterator[dict[str, Any]]:
    """The batches of a split in order, with progress."""
    stream = _input.in_order(run, name, size, reading)
    batches = -(-len(run.splits[name]) // size)
    return _progress.track(stream, f"{row}: encoding {name}", batches, f"batches of {size}")


def check_split(run: Run, name: str) -> None:
    """Raise `ValueError` for a split that does not exist or has no single feature, as examples of several images."""
    whole = [n for n, split in run.splits.items() if split.spec.given or len(split.spec.shapes) == 1]
    if name not in whole:
        raise ValueError(f"--split must be one of {', '.join(whole)}, got {name!r}")


def raw_inputs(run: Run, reading: data.Reading) -> tuple[Features, dict[str, data.Split]]:
    """The readable inputs as rows, images at the encoder's size and views concatenated, and their splits."""
    spec = run.outline.spec
    flat = _flat(None if spec.given else _program.evaluation_view(run.config, spec.image_shape))
    size = run.config.evaluation.batch_size * jax.process_count()
    sharding = run.program.batch_sharding if jax.process_count() > 1 else None
    apply = jax.tree_util.Partial(flat)
    features, readable = {}, {}
    for name in run.config.evaluation.splits(tuple(run.splits)):
        stream = tracked(run, name, size, reading, "raw input")
        features[name], index = evaluation.encode(apply, stream, batch_size=size, sharding=sharding)
        readable[name] = run.splits[name].only(index)
    return features, readable


@lru_cache(maxsize=8)  # the same function compiles once
def _flat(view: Callable[[jax.Array], jax.Array] | None) -> Callable[[Any], jax.Array]:
    """Inputs to rows: images by `view`, None for given views."""

    def flat(inputs: Any) -> jax.Array:
        parts = inputs["views"] if view is None else (view(inputs),)
        rows = [jnp.nan_to_num(x).reshape((x.shape[0], -1)) for x in parts]
        return jnp.concatenate(rows, axis=1)

    return flat


def raw_bytes(run: Run) -> int:
    """Size in bytes of the arrays that `raw_inputs` returns."""
    spec, side = run.outline.spec, run.config.policies[0].image_size
    numbers = sum(map(math.prod, spec.view_shapes)) if spec.given else side * side * spec.channels
    names = run.config.evaluation.splits(tuple(run.splits))
    return sum(4 * numbers * len(run.splits[name]) for name in names)


def one_encoder(run: Run, state: _program.State) -> Any:
    """The encoder that is evaluated, for methods with one encoder.

    Raises:
      ValueError: the method has an encoder for each view.
    """
    learner = run.program.learner
    if not learner.one_encoder:
        raise ValueError(
            f"this needs a run with one encoder; method {type(run.config.method).__name__} has one for each of the "
            f"{run.config.views.k} views. `mvcl embed` writes the features of a split"
        )
    return learner.network(*run.program.evaluated(state)).encoder


def save_embeddings(
    path: Path, features: np.ndarray, labels: np.ndarray, class_names: tuple[str, ...]
) -> None:
    """Write (n, d) or (n, k, d) features with (n,) labels and the names of their classes as .npz."""
    _files.save_arrays(path, features=features, labels=labels, class_names=np.asarray(class_names))
