"""Features of a run's splits: of each example, of the raw inputs, and of augmented batches for the linear probe."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import _files, _progress, augment, data, evaluation
from mvcl.training import _input, _program
from mvcl.training._config import Config
from mvcl.training._run import Run

Features = dict[str, np.ndarray]
# Added to the seed of the evaluation: crops differ from those of pre-training with the same seed.
SEED = 1_000_003


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
    apply = jax.tree_util.Partial(run.program.apply, *run.program.evaluated(state))
    return _encoded(run, apply, splits, reading, row)


def raw_inputs(run: Run, reading: data.Reading) -> tuple[Features, dict[str, data.Split]]:
    """The readable inputs as rows, images at the encoder's size and views concatenated, and their splits."""
    spec = run.outline.spec
    policy = None if spec.given else _program.evaluation_policy(run.config, spec.image_shape)
    flat = jax.tree_util.Partial(_flat(policy, spec.image_shape is None))
    return _encoded(run, flat, None, reading, "raw input")


def _encoded(
    run: Run, apply: Any, splits: tuple[str, ...] | None, reading: data.Reading, row: str
) -> tuple[Features, dict[str, data.Split]]:
    """What a function makes of the inputs of each split, and the splits restricted to the readable examples."""
    features, readable = {}, {}
    for name in run.config.evaluation.splits(tuple(run.splits)) if splits is None else splits:
        check_split(run, name)
        what = f"{row}: encoding {name}"
        stream = in_order(run, name, what, reading, crop=_input.evaluation_crop(run))
        features[name], index = evaluation.encode(apply, stream, **batch_of(run))
        readable[name] = run.splits[name].only(index)
    return features, readable


def batch_of(run: Run) -> dict[str, Any]:
    """Size and sharding of the batches of an evaluation, for `evaluation.encode`."""
    mesh = run.program.mesh
    size = -(-run.config.evaluation.batch_size // mesh.size) * mesh.size
    return {"batch_size": size, "sharding": run.program.batch_sharding if mesh.size > 1 else None}


def in_order(
    run: Run,
    name: str,
    what: str,
    reading: data.Reading,
    *,
    crop: data.Crop | None = None,
    rows: np.ndarray | None = None,
) -> Iterator[dict[str, Any]]:
    """This process's share of the readable examples of a split, or of some rows of it, in order and with progress.

    Raises:
      StalledReader: no batch came for train.stall_seconds.
      CorruptExample: more unreadable examples than `reading` allows.
    """
    size = batch_of(run)["batch_size"]
    stream = data.in_order(
        run.splits[name],
        name,
        batch_size=size,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        crop=crop,
        reading=reading,
        rows=rows,
    )
    watched = data.watched(stream, run.config.train.stall_seconds, reading)
    count = len(run.splits[name]) if rows is None else len(rows)
    return _progress.track(watched, what, -(-count // size), f"batches of {size}")


def check_split(run: Run, name: str) -> None:
    """Raise `ValueError` for a split that does not exist or has no single feature, as examples of several images."""
    whole = [n for n, split in run.splits.items() if split.spec.given or len(split.spec.shapes) == 1]
    if name not in whole:
        raise ValueError(f"--split must be one of {', '.join(whole)}, got {name!r}")


@lru_cache(maxsize=8)  # the same function compiles once
def _flat(policy: augment.Policy | None, cropped: bool) -> Any:
    """Inputs to rows: images as the encoder sees them, or given views."""

    def flat(inputs: Any) -> jax.Array:
        parts = inputs["views"] if policy is None else (_program.evaluation_view(policy, cropped)(inputs),)
        return jnp.concatenate([jnp.nan_to_num(x).reshape((x.shape[0], -1)) for x in parts], axis=1)

    return flat


def raw_bytes(run: Run) -> int:
    """Size in bytes of the arrays that `raw_inputs` returns."""
    spec, side = run.outline.spec, run.config.policies[0].image_size
    numbers = sum(map(math.prod, spec.view_shapes)) if spec.given else side * side * spec.channels
    names = run.config.evaluation.splits(tuple(run.splits))
    return sum(4 * numbers * len(run.splits[name]) for name in names)


def save_embeddings(
    path: Path, features: np.ndarray, labels: np.ndarray, class_names: tuple[str, ...]
) -> None:
    """Write (n, d) or (n, k, d) features with (n,) labels and the names of their classes as .npz."""
    _files.save_arrays(path, features=features, labels=labels, class_names=np.asarray(class_names))


def policy(config: Config, crop_padding: int = 0) -> augment.Policy:
    """Random crop and flip, normalised as the evaluation."""
    return dataclasses.replace(
        _program.evaluation_policy(config, None),
        random_crop=True,
        crop_padding=crop_padding,
        flip_probability=config.policies[0].flip_probability,
    )


def augmented(run: Run, state: _program.State, reading: data.Reading) -> evaluation.Augmented:
    """The encoder's features of shuffled batches under `policy`; memory holds a batch, not an epoch.

    Views are a function of (evaluation.seed, epoch, row), on any number of processes and devices. Rows are read by
    train.threads threads. Unreadable examples are replaced, as in training.
    """
    program, options = run.program, run.config.evaluation
    learner, output, seed_of_views = program.learner, options.features, options.seed + SEED
    fixed = run.outline.spec.fixed
    sharding = program.batch_sharding if program.mesh.size > 1 else None

    def batches(
        split: str, *, batch_size: int, steps: int, seed: int, crop_padding: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        whole, used = run.splits[split], policy(run.config, crop_padding)

        def features(params: Any, statistics: Any, inputs: Any) -> jax.Array:
            images, epoch, index = inputs["images"], inputs["epoch"], inputs["index"]
            views = augment.draw_views((used,), images if fixed else (images,), seed_of_views, epoch, index)
            return learner.features(params, statistics, {"images": jnp.asarray(views)[:, 0]}, output)

        def crop(arrays: data.Example, epoch: int, row: int) -> data.Example:
            return augment.host_crop(arrays[0], [used], seed_of_views, epoch, row)

        apply = jax.tree_util.Partial(features, *program.evaluated(state))

        stream = data.batches(
            whole,
            batch_size=batch_size,
            seed=seed,
            process_index=jax.process_index(),
            process_count=jax.process_count(),
            threads=run.config.train.threads,
            crop=None if fixed else crop,
            reading=reading,
        )
        size = -(-min(batch_size, options.batch_size) // program.mesh.size) * program.mesh.size
        own = size // jax.process_count()
        watched = data.watched(stream, run.config.train.stall_seconds, reading)
        with contextlib.closing(watched):
            for batch in itertools.islice(watched, steps):
                parts = []  # of a process, as many as other processes have
                for first in range(0, -(-batch_size // size) * own, own):
                    rows = slice(first, first + own)
                    inputs = {name: batch[name][rows] for name in ("images", "epoch", "index")}
                    parts.append({"inputs": inputs, "index": batch["index"][rows]})
                found, index = evaluation.encode(apply, parts, batch_size=size, sharding=sharding)
                # Replacements of unreadable rows may be equal, and `encode` keeps one of them.
                drawn = np.resize(np.arange(len(index)), batch_size)
                yield found[drawn], whole.labels[index[drawn]]

    return batches
