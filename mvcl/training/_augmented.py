"""Features of random views: of the training split for the linear probe, and of a split for `mvcl embed`."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import augment, data, evaluation
from mvcl.training import _program
from mvcl.training._config import Config
from mvcl.training._run import Run

# Added to the seed of the evaluation: crops differ from those of pre-training with the same seed.
_SEED = 1_000_003


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
    learner, output, seed_of_views = program.learner, options.features, options.seed + _SEED
    fixed = run.outline.spec.fixed
    sharding = program.batch_sharding if program.mesh.size > 1 else None

    def batches(
        split: str, *, batch_size: int, steps: int, seed: int, crop_padding: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        whole, used = run.splits[split], policy(run.config, crop_padding)

        def features(params: Any, statistics: Any, inputs: Any) -> jax.Array:
            images, epoch, index = inputs["images"], inputs["epoch"], inputs["index"]
            views = augment.draw_views((used,), images if fixed else (images,), seed_of_views, epoch, index)
            return learner.features(params, statistics, jnp.asarray(views)[:, 0], output)

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
        watched = data.watched(stream, run.config.train.stall_seconds, reading)
        with contextlib.closing(watched):
            for batch in itertools.islice(watched, steps):
                parts = _parts(batch, -(-batch_size // size), size // jax.process_count())
                found, index = evaluation.encode(apply, parts, batch_size=size, sharding=sharding)
                # Replacements of unreadable rows may be equal, and `encode` keeps one of them.
                rows = np.resize(np.arange(len(index)), batch_size)
                yield found[rows], whole.labels[index[rows]]

    return batches


def of_views(
    run: Run, state: _program.State, split: str, views: int, output: str, reading: data.Reading
) -> tuple[np.ndarray, np.ndarray]:
    """Features of random views of the readable images of a split, by the policies of training.

    Args:
      run, state: the run, and the state whose encoder (and head) is used.
      split: its name.
      views: views per image, at least 1; view v is drawn by the policy of view v, modulo the config's k.
      output: `encoder` or `head`, in evaluation mode.
      reading: counts unreadable images.

    Returns:
      (n, views, d) float32 features and the (n,) rows of the split.

    Raises:
      ValueError: an example is not one image.
    """
    spec, program, options = run.splits[split].spec, run.program, run.config.evaluation
    if spec.given or len(spec.shapes) > 1:
        raise ValueError(f"--views draws views of one image, got examples of {len(spec.shapes)} arrays")
    policies = [run.config.policies[view % run.config.views.k] for view in range(views)]
    seed, learner, fixed = options.seed + _SEED, program.learner, run.outline.spec.fixed

    def features(params: Any, statistics: Any, inputs: Any) -> jax.Array:
        images, index = inputs["images"], inputs["index"]
        if not fixed and views == 1:
            images = (images,)  # one crop
        drawn = augment.draw_views(policies, images, seed, np.zeros(len(index), np.uint32), index)
        found = []
        for places, group in augment.by_shape(drawn):
            flat = group.reshape((-1, *group.shape[2:]))
            encoded = learner.features(params, statistics, flat, output)
            found.append((places, encoded.reshape((*group.shape[:2], -1))))
        return augment.in_order_of_views(found).reshape((len(index), -1))

    def crop(arrays: data.Example, epoch: int, row: int) -> data.Example:
        return augment.host_crop(arrays[0], policies, seed, 0, row)

    size = -(-options.batch_size // program.mesh.size) * program.mesh.size
    stream = data.in_order(
        run.splits[split],
        split,
        batch_size=size,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        crop=None if fixed else crop,
        reading=reading,
    )
    watched = data.watched(stream, run.config.train.stall_seconds, reading)
    batches = (
        {"inputs": {"images": batch["inputs"], "index": batch["index"]}, "index": batch["index"]}
        for batch in run.progress(
            watched,
            f"encoding {views} views of {split}",
            -(-len(run.splits[split]) // size),
            f"batches of {size}",
        )
    )
    apply = jax.tree_util.Partial(features, *program.evaluated(state))
    sharding = program.batch_sharding if program.mesh.size > 1 else None
    found, index = evaluation.encode(apply, batches, batch_size=size, sharding=sharding)
    return found.reshape((len(found), views, -1)), index


def _parts(batch: data.Batch, count: int, size: int) -> Iterator[dict[str, Any]]:
    """A process's rows of a batch in `count` parts of at most `size` rows, for `evaluation.encode`."""
    for part in range(count):
        rows = slice(part * size, (part + 1) * size)
        inputs = {name: batch[name][rows] for name in ("images", "epoch", "index")}
        yield {"inputs": inputs, "index": batch["index"][rows]}
