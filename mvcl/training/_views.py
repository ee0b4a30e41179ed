"""Features of views: random ones of the training split for the linear probe, and each view of a split."""

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import _files, _progress, augment, data, evaluation, methods
from mvcl.training import _encode, _program
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
    run: Run,
    state: _program.State,
    split: str,
    views: int,
    outputs: tuple[str, ...],
    reading: data.Reading,
    *,
    rows: np.ndarray | None = None,
) -> tuple[dict[str, list[np.ndarray]], np.ndarray]:
    """Features of random views of the readable images of a split, by the policies of training.

    Args:
      run, state: the run, and the state whose encoder (and head) is used.
      split: its name.
      views: views per image, at least 1; view v is drawn by the policy of view v, modulo the config's k, and embedded
        by the encoder of view v if each view has one.
      outputs: `encoder`, `head` or both, in evaluation mode; of both the encoder is computed once.
      reading: counts unreadable images.
      rows: only these rows of the split; None: all.

    Returns:
      Of each output a (n, d) float32 array for each view, and the (n,) rows of the split.

    Raises:
      ValueError: an example is not one image, or there are other views than the encoders have.
    """
    spec, program, options = run.splits[split].spec, run.program, run.config.evaluation
    if spec.given or len(spec.shapes) > 1:
        raise ValueError(f"--views draws views of one image, got examples of {len(spec.shapes)} arrays")
    learner, k = program.learner, run.config.views.k
    if not learner.one_encoder and views != k:
        raise ValueError(f"--views must be {k}, since each view has an encoder of its own; got {views}")
    policies = [run.config.policies[view % k] for view in range(views)]
    seed, fixed = options.seed + _SEED, run.outline.spec.fixed

    def each(params: Any, statistics: Any, inputs: Any) -> list[jax.Array]:
        """Of each output (b, Σ_l d_l) features of all views, side by side."""
        images, index = inputs["images"], inputs["index"]
        if not fixed and views == 1:
            images = (images,)  # one crop
        drawn = augment.draw_views(policies, images, seed, np.zeros(len(index), np.uint32), index)
        if not learner.one_encoder:
            return _of_own_encoders(learner, params, statistics, {"views": drawn}, outputs)
        found: list[list[tuple[Sequence[int], jax.Array]]] = [[] for _ in outputs]
        for places, group in augment.by_shape(drawn):
            flat = group.reshape((-1, *group.shape[2:]))
            for output, parts in zip(outputs, found):  # XLA merges the calls of the encoder
                encoded = learner.features(params, statistics, {"images": flat}, output)
                parts.append((places, encoded.reshape((*group.shape[:2], -1))))
        return [augment.in_order_of_views(parts).reshape((len(index), -1)) for parts in found]

    def crop(arrays: data.Example, epoch: int, row: int) -> data.Example:
        return augment.host_crop(arrays[0], policies, seed, 0, row)

    what = f"encoding {views} views of {split}"
    batches = (
        {"inputs": {"images": batch["inputs"], "index": batch["index"]}, "index": batch["index"]}
        for batch in _encode.in_order(run, split, what, reading, crop=None if fixed else crop, rows=rows)
    )
    return _encoded(run, state, each, batches, views, outputs)


def of_given_views(
    run: Run,
    state: _program.State,
    split: str,
    outputs: tuple[str, ...],
    reading: data.Reading,
    *,
    rows: np.ndarray | None = None,
) -> tuple[dict[str, list[np.ndarray]], np.ndarray]:
    """Features of each given view of the readable examples of a split, by its own encoder if each view has one.

    Args, returns: as `of_views`; vectors of missing views are zero. A method whose head takes all views together, as
    `supervised`, has one array for `head`.
    """
    learner = run.program.learner

    def each(params: Any, statistics: Any, inputs: Any) -> list[jax.Array]:
        return _of_own_encoders(learner, params, statistics, inputs, outputs)

    batches = _encode.in_order(run, split, f"encoding the views of {split}", reading, rows=rows)
    return _encoded(run, state, each, batches, run.config.views.k, outputs)


def _of_own_encoders(
    learner: methods.Learner, params: Any, statistics: Any, inputs: Any, outputs: tuple[str, ...]
) -> list[jax.Array]:
    """Of each output the (b, Σ_l d_l) features of the views, side by side."""
    return [learner.features(params, statistics, inputs, _beside(learner, output)) for output in outputs]


def _beside(learner: methods.Learner, output: str) -> str:
    """The output of a method that has those of the views side by side."""
    views = {"encoder": "views", "head": "head_views"}[output]
    return views if views in learner.outputs else output


def _encoded(
    run: Run,
    state: _program.State,
    each: Callable[..., list[jax.Array]],
    batches: Iterator[dict[str, Any]],
    views: int,
    outputs: tuple[str, ...],
) -> tuple[dict[str, list[np.ndarray]], np.ndarray]:
    """What `each` computes of the batches, split into outputs and views, and the rows."""
    program = run.program
    variables = program.evaluated(state)
    first = next(batches)
    widths = [x.shape[1] for x in jax.eval_shape(each, *variables, first["inputs"])]

    def joined(params: Any, statistics: Any, inputs: Any) -> jax.Array:
        return jnp.concatenate(each(params, statistics, inputs), axis=1)

    apply = jax.tree_util.Partial(joined, *variables)
    stream = itertools.chain([first], batches)
    found, index = evaluation.encode(apply, stream, **_encode.batch_of(run))
    parts = np.split(found, np.cumsum(widths)[:-1], axis=1)
    return {
        output: np.split(part, np.cumsum(_lengths(run, state, output, part.shape[1], views))[:-1], axis=1)
        for output, part in zip(outputs, parts)
    }, index


def _lengths(run: Run, state: _program.State, output: str, width: int, views: int) -> list[int]:
    """Lengths of the embeddings of the views, of `width` in all; one of a head that takes all views together."""
    learner = run.program.learner
    if learner.one_encoder or _beside(learner, output) != output:
        return [width // views] * views
    if output == "head":
        return [width]
    return [encoder.features for encoder in learner.network(*run.program.evaluated(state)).encoder]


def _parts(batch: data.Batch, count: int, size: int) -> Iterator[dict[str, Any]]:
    """A process's rows of a batch in `count` parts of at most `size` rows, for `evaluation.encode`."""
    for part in range(count):
        rows = slice(part * size, (part + 1) * size)
        inputs = {name: batch[name][rows] for name in ("images", "epoch", "index")}
        yield {"inputs": inputs, "index": batch["index"][rows]}


def embed(
    run: Run, state: _program.State, split: str, out: Path, *, views: int = 0
) -> tuple[tuple[int, ...], list[evaluation.Result]]:
    """Write features, labels and class names of a split as .npz, and the measures of the features beside it as .json.

    Args:
      run, state: as from `open_run`; the features are the output that run.config.evaluation.features names.
      split: its name.
      out: the .npz file.
      views: 0 for one vector of each example, as evaluated; else random views of each image, by the policies of
        training.

    Returns:
      The shape of the features, (n, d) or (n, views, d), and `evaluation.embedding_measures` of them.

    Raises:
      ValueError: there is no such split, or no images to draw views of.
    """
    if views < 0:
        raise ValueError(f"--views must be at least 0, got {views}")
    if views:
        _encode.check_split(run, split)
        reading = data.Reading(run.config.train.corrupt_limit)
        output = run.config.evaluation.features
        by_output, rows = of_views(run, state, split, views, (output,), reading)
        by_view = np.stack(by_output[output])
        labels, features = run.splits[split].labels[rows], by_view.swapaxes(0, 1)
    else:
        encoded, of_split = _encode.encode(run, state, (split,))
        features, labels, by_view = encoded[split], of_split[split], encoded[split][None]
    with _progress.during("measuring the features"):
        measures = evaluation.embedding_measures(by_view, seed=run.config.evaluation.seed)
    if jax.process_index() == 0:
        _encode.save_embeddings(out, features, labels, run.splits[split].class_names)
        text = json.dumps([dataclasses.asdict(result) for result in measures], indent=1)
        _files.write_whole(out.with_suffix(".json"), text + "\n")
    return np.shape(features), measures
