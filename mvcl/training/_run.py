"""A config with its opened data and compiled functions, for a new run or a run folder; its training batches."""

import dataclasses
import hashlib
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl import _buckets, _configs, _files, _progress, augment, data, methods, models
from mvcl.training import _program
from mvcl.training._config import Config, Mesh, suited_to
from mvcl.training._folder import Checkpoints
from mvcl.training._serialise import from_json, replace_at, tree

KEPT = ("params", "statistics", "ema", "step")  # what an encoder keeps of a state


@dataclasses.dataclass(frozen=True)
class Run:
    """A config with its opened data and compiled functions."""

    config: Config
    splits: Mapping[str, data.Split]
    outline: data.Outline
    program: _program.Program
    reading: data.Reading
    """What is being read, and the unreadable examples so far, of which train.corrupt_limit are left out."""
    weights: str | None = None
    """The file of its weights, with their names and a digest; None if it was trained."""
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What the run's folder keeps of its data, with `class_names` and `scaling`; empty if it was not read."""


def prepare(config: Config, splits: Mapping[str, data.Split] | None = None) -> Run:
    """Open the data, if `splits` is None, and build the compiled functions; `ValueError` if they are invalid."""
    if splits is None:
        with _progress.during("opening the data"):
            splits = config.data.open()
    split, outline = splits["train"], splits["train"].outline
    config = suited_to(config, outline)
    compared = config.train.group or config.examples
    if split.draws is not None and (unit := math.gcd(split.draws.size, config.examples)) % compared:
        what = f"data.classes_per_draw = {split.draws.size} different classes in a batch of {config.examples}"
        why = f"{compared} are compared with each other: one class may be there twice"
        how = f"a number that divides {unit}, or --data.classes-per-draw to a multiple of {compared}"
        raise ValueError(f"{what}, of which {why}. Set --train.group to {how}")
    program = _program.build(config, outline)
    if outline.classes < 2:
        config = replace_at(config, ("evaluation",), config.evaluation.of_clusters(program.learner.clusters))
    elif splits.get("test") is split:
        config = replace_at(config, ("evaluation",), config.evaluation.without_test())
    config.evaluation.check(splits)
    return Run(config, splits, outline, program, data.Reading(config.train.corrupt_limit))


def open_run(
    workdir: str | Path,
    checkpoint: str = "latest",
    network: str = "config",
    *,
    output: Literal["config", "encoder", "head", "views", "head_views"] = "config",
    with_data: bool = True,
) -> tuple[Run, _program.State]:
    """Open a finished or interrupted run on the present devices; arguments and errors are those of `open_encoder`.

    `output` is the output to evaluate; `config` that of evaluation.features. Without `with_data` the run has no splits,
    and its data are not needed. All calls on the run together leave out up to train.corrupt_limit unreadable examples.
    """
    folder = _configs.run_folder(workdir)
    with _files.naming(file := folder / "config.json"):
        config = from_json(file.read_text(encoding="utf-8"), encoder_only=not with_data)
    if network != "config":
        if not isinstance(config.method, methods.Following) or network not in ("online", "momentum"):
            what = "--network must be online or momentum, for a method with a momentum encoder"
            raise ValueError(f"{what}; got {network!r} for {type(config.method).__name__}")
        config = replace_at(config, ("method", "evaluate"), network)
    if output != "config":
        config = replace_at(config, ("evaluation", "features"), output)
    weights = folder / "encoder.npz"
    if not (folder / "checkpoints").is_dir() and not weights.is_file():
        raise ValueError(f"{folder} has no checkpoint; `mvcl train {folder} --workdir {folder}` trains it")
    kept = _files.read_json(folder / "data.json") if (folder / "data.json").is_file() else {}
    with _files.naming(folder):
        run = prepare(_found(_here(config), kept)) if with_data else _without_data(_here(config), kept)
    if weights.is_file():
        with _files.reading(weights, "file of an encoder's weights"):
            return run, _read(run.program, _files.read_npz(weights))
    with closing(Checkpoints(folder / "checkpoints", 1, read_only=True)) as checkpoints:
        steps = checkpoints.steps()
        named = {"latest": max(steps, default=None), "best": checkpoints.best(steps)}
        step = named.get(checkpoint, int(checkpoint) if checkpoint.isdecimal() else None)
        if step not in steps:
            known = f"latest, best or one of the steps {', '.join(map(str, steps)) or 'none'}"
            raise ValueError(f"--checkpoint must be {known}; got {checkpoint!r}")
        with _progress.during(f"reading the checkpoint of step {step}"):
            restored = checkpoints.restore(run.program.abstract_state, step)
    assert restored is not None
    return run, restored[0]


def _here(config: Config) -> Config:
    """The config on the present devices."""
    devices = 1 if config.examples % (jax.device_count() * (config.train.group or 1)) else -1
    return replace_at(config, ("mesh",), Mesh(data=devices))


def _read(program: _program.Program, arrays: Mapping[str, np.ndarray]) -> _program.State:
    """The part of a state that an encoder keeps, of its arrays by path."""

    def leaf(path: Any, like: Any) -> jax.Array:
        found = arrays[jax.tree_util.keystr(path)]
        if found.shape != like.shape:
            raise ValueError(f"{jax.tree_util.keystr(path)} must have shape {like.shape}, got {found.shape}")
        return jax.device_put(found, like.sharding)

    likes = {name: program.abstract_state[name] for name in KEPT if name in program.abstract_state}
    return jax.tree_util.tree_map_with_path(leaf, likes)


def _found(config: Config, kept: Mapping[str, Any]) -> Config:
    """The config; a relative path of its data that is not in this folder is that of the folder of training."""
    for name in ("path", "directory"):
        given = getattr(config.data, name, "")
        place = Path(kept.get("folder", "")) / given
        if given and not Path(given).exists() and place.exists():
            config = replace_at(config, ("data", name), str(place))
    return config


def _without_data(config: Config, kept: Mapping[str, Any]) -> Run:
    """A run without splits, of what its folder keeps of its data."""
    if not kept:
        raise ValueError("it has no data.json, which training writes; repeat `mvcl train` with its data")
    spec = kept["spec"]
    shapes, names = tuple(map(tuple, spec["shapes"])), tuple(spec["view_names"])
    spec = data.ExampleSpec(shapes, names, spec["given"])
    outline = data.Outline(kept["examples"], kept["classes"], spec, kept["missing"])
    config = suited_to(config, outline)
    program = _program.build(config, outline)
    return Run(config, {}, outline, program, data.Reading(config.train.corrupt_limit), kept=kept)


def open_weights(config: Config, path: Path, prefix: str | None = None) -> tuple[Run, _program.State]:
    """A config with the weights of a file in its encoder, and in its head if the evaluation is of it, untrained.

    Any method with one encoder is read as SimCLR, whose network has this encoder and this head. `ValueError` as
    `models.load_weights`, or if the method has an encoder for each view and is not SEM.
    """
    if isinstance(config.method, methods.MultiEncoder):
        raise ValueError("--weights needs one encoder, or method sem; multi_encoder has one for each view")
    sem, protocol = isinstance(config.method, methods.Sem), config.evaluation
    method = config.method if sem else methods.Simclr()
    train = dataclasses.replace(config.train, initial=None, ema=0.0)
    run = prepare(_here(dataclasses.replace(config, method=method, train=train)))
    state, learner = run.program.init(), run.program.learner
    net = learner.network(*_program.evaluated(state))
    head = protocol.features in ("head", "head_views") or getattr(protocol, "knn_head", False)
    with _progress.during(f"reading {path}"):
        encoder, head = (net, None) if sem else (net.encoder, net.head if head else None)
        found = models.load_weights(encoder, path, prefix=prefix, head=head)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    state |= {"params": nnx.state(net, nnx.Param)} | ({} if sem else {"statistics": learner.statistics(net)})
    run = dataclasses.replace(run, weights=f"{path.name} {found}* sha256 {digest}")
    return run, sharded_as(state, run.program.abstract_state)


def sharded_as(arrays: Any, like: Any) -> Any:
    """A tree of arrays with the shardings of another."""
    return jax.tree.map(lambda x, of: jax.device_put(x, of.sharding), arrays, like)


def one_encoder(run: Run, state: _program.State) -> Any:
    """The encoder that is evaluated, in evaluation mode; `ValueError` if the method has one for each view."""
    learner = run.program.learner
    if not learner.one_encoder:
        what = f"method {type(run.config.method).__name__} has one for each of the {run.config.views.k} views"
        raise ValueError(f"this needs a run with one encoder; {what}. `mvcl embed` writes its features")
    return models.eval_view(learner.network(*_program.evaluated(state)).encoder)


def with_initial(run: Run, state: _program.State) -> _program.State:
    """A new state with the encoder of train.initial, a run or a file; `ValueError` if it or the method does not fit."""
    method = run.config.method
    if not isinstance(method, (methods.Simclr, methods.Supervised)):
        raise ValueError(f"train.initial needs method simclr or supervised, got {type(method).__name__}")
    tree(run.config)  # its own code is known to the run, on every process
    initial = _buckets.local_copy(run.config.train.initial or "")
    if initial.is_file():
        encoder = one_encoder(run, state)
        found = models.load_weights(encoder, initial)
        _progress.line(f"the encoder starts from {initial}, names {found}*")
    else:
        encoder = one_encoder(*open_run(run.config.train.initial or "", with_data=False))
    params, statistics = run.program.learner.start_from(state["params"], state["statistics"], encoder)
    new = {**state, "params": params, "statistics": statistics}
    new |= {"ema": jax.tree.map(jnp.copy, params)} if "ema" in state else {}
    return sharded_as(new, run.program.abstract_state)


def host_crop(run: Run, policies: Sequence[augment.Policy] | None = None, seed: int = 0) -> data.Crop | None:
    """Host crops of images of different sizes, by default by the evaluation's policy; None if the device crops."""
    spec = run.outline.spec
    used = [_program.evaluation_policy(run.config, None)] if policies is None else policies
    if spec.given or spec.image_shape is not None:
        return None
    return lambda images, epoch, row: augment.host_crop(images, used, seed, epoch, row)


def batches(run: Run, first_step: int) -> Generator[data.Batch, None, None]:
    """The training batches over the devices of all processes, from `first_step` on, two ahead; closing the generator
    stops the readers."""
    config = run.config
    stream = data.batches(
        run.splits["train"],
        batch_size=config.examples,
        seed=config.train.seed,
        first_step=first_step,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        threads=config.train.threads,
        last_batch=run.program.learner.last_batch,
        crop=host_crop(run, config.policies, config.train.seed),
        reading=run.reading,
        multiple=run.program.mesh.size,
    )
    placed = data.to_devices(stream, run.program.batch_sharding)  # by the reader's thread, beside the steps
    return data.watched(placed, config.train.stall_seconds, run.reading, ahead=2)


def save_views(run: Run, path: Path, count: int = 8) -> None:
    """Write the first readable training images and their views of epoch 0 as .npz, unless the file is there.

    `views` is (m, k, side, side, C) uint8 with the side of the largest view; view v fills its first `sizes[v]` rows and
    columns, and the rest is zero.
    """
    split, policies = run.splits["train"], run.config.policies
    if split.spec.given or path.is_file():
        return
    crop = host_crop(run, policies, run.config.train.seed)
    stream = data.in_order(split, "train", batch_size=1, crop=crop, reading=run.reading)
    watched = data.watched(stream, run.config.train.stall_seconds, run.reading)
    with closing(watched), _progress.during("reading images for the report"):
        readable = list(islice((batch for batch in watched if len(batch["index"])), count))
    if not readable:
        return  # training says why
    batch = jax.tree.map(lambda *parts: np.concatenate(parts), *readable)
    rows, epoch = batch["index"].astype(np.int32), np.zeros(len(batch["index"]), np.int32)
    with _progress.during("compiling the views"):
        drawn = run.program.views({"images": batch["inputs"], "index": rows, "epoch": epoch})
    each = drawn if isinstance(drawn, tuple) else np.moveaxis(np.asarray(drawn), 1, 0)
    sizes = [policy.image_size for policy in policies]
    views = np.zeros((len(rows), len(policies), max(sizes), max(sizes), split.spec.channels), np.uint8)
    for v, (view, policy, size) in enumerate(zip(each, policies, sizes, strict=True)):
        views[:, v, :size, :size] = np.round(255 * np.clip(np.asarray(view) * policy.std + policy.mean, 0, 1))
    whole = host_crop(run)
    shown = data.in_order(split, "train", batch_size=len(rows), crop=whole, reading=run.reading, rows=rows)
    images = next(shown)["inputs"]
    images = images[:, 0] if images.ndim == 5 else images
    images = images if images.dtype == np.uint8 else np.round(images * 255).astype(np.uint8)
    names = {"view_names": run.config.view_names, "class_names": split.class_names}
    _files.save_arrays(path, images=images, views=views, sizes=sizes, labels=split.labels[rows], **names)
