"""The loop: step, log, evaluate, save."""

import dataclasses
import io
import json
import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import augment, data, evaluation, methods
from mvcl.training import _folder, _processes, _program, _watch
from mvcl.training._checkpoints import Checkpoints
from mvcl.training._config import Config, Mesh, check, suited_to
from mvcl.training._load import load
from mvcl.training._log import Log, stdout

Features = dict[str, np.ndarray]
# Raw inputs that take more are not measured beside an encoder.
_RAW_BYTES = 8 << 30

# Corrupt rows that a process may tell the others at a step; more wait for the next.
_TOLD_AT_ONCE = 7
# Steps that compile or fill queues, before those of a profile.
_UNPROFILED = 3


class Diverged(RuntimeError):
    """The loss is not a number any more."""


class Interrupted(RuntimeError):
    """The run was told to stop by a signal, and saved."""

    def __init__(self, number: int, step: int, steps: int) -> None:
        name = signal.Signals(number).name
        super().__init__(
            f"stopped by {name}; saved at step {step} of {steps}. The same command continues from there"
        )
        self.signal = number


@dataclasses.dataclass(frozen=True)
class Run:
    """A config with its data and programs at hand."""

    config: Config
    splits: Mapping[str, data.AnySplit]
    outline: data.Outline
    program: _program.Program


def prepare(config: Config) -> Run:
    """Open the data and build the programs.

    Raises:
      ValueError: something about the config or the data cannot work.
    """
    splits = config.data.open()
    outline = data.outline(splits["train"])
    config = check(suited_to(config, outline))
    program = _program.build(config, outline)
    config.evaluation.check(splits)
    return Run(config, splits, outline, program)


def train(config: Config, workdir: Path, *, profile: int = 0) -> dict[str, list[evaluation.Result]]:
    """Train a config in a folder, from its newest checkpoint if it has one, and evaluate.

    Args:
      config: the experiment.
      workdir: folder of the run; made if absent.
      profile: steps to trace, into its folder `profile`.

    Returns:
      The evaluation table: row name -> results.

    Raises:
      ValueError: the config cannot work, or the folder belongs to another.
      Diverged: the loss became NaN or infinite.
      Interrupted: SIGTERM or SIGINT came; what was trained is saved.
      DamagedCheckpoints: no checkpoint of the folder can be read.
      CorruptExample: more examples cannot be read than train.corrupt_limit allows.
      StalledReader: no batch came for train.stall_seconds.
      LostProcess: another process of the run is gone.
    """
    run = prepare(config)
    try:
        if jax.process_index() > 0:
            return _train(run, workdir, profile)
        with _folder.locked(workdir):
            _folder.claim(workdir, run.config)
            return _train(run, workdir, profile)
    except Exception as error:
        if _processes.means_lost(error):
            raise _processes.LostProcess(workdir) from error
        raise


def _train(run: Run, workdir: Path, profile: int) -> dict[str, list[evaluation.Result]]:
    config, program = run.config, run.program
    out = stdout()
    say = partial(print, file=out, flush=True) if out else lambda *_: None
    checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoint.keep)
    restored = checkpoints.restore(program.abstract_state(), say=say)
    record: dict[str, Any]
    if restored is None:
        state, step, record = _initial_state(run), 0, {}
        every = ", all there are," if config.examples == run.outline.examples else ""
        say(f"training {program.steps} steps of {config.examples} examples{every} x {config.views.k} views")
    else:
        state, record = restored
        step = int(record["step"])
        say(f"continuing from step {step} of {program.steps}")
    reading = data.Reading(config.train.corrupt_limit, record.get("corrupt", ()))
    heart, clock = None, _watch.Clock()
    if jax.process_index() == 0:
        clock = _watch.Clock(max((row.get("time", 0.0) for row in _folder.read_log(workdir)), default=0.0))
        heart = _watch.Heartbeat(workdir / "heartbeat.json", program.steps, clock)
        heart.beat(step, "starting", now=True)
        _folder.rewind_log(workdir, step)
        data.save_scaling(run.splits["train"], workdir / "scaling.json")
        shown = not isinstance(run.splits["train"], data.ViewSplit)
        if shown and not (workdir / "views.npz").is_file():
            _save_views(run, workdir)
    if step < program.steps:
        log = None
        if jax.process_index() == 0:
            log = Log(
                workdir,
                steps=program.steps,
                first_step=step,
                views_per_step=config.examples * config.views.k,
                out=out,
                clock=clock,
            )
        first = max(min(step + _UNPROFILED, program.steps - profile), step)
        trace = _watch.Profile(workdir / "profile", first, profile if log is not None else 0)
        if log is not None and profile:
            log.say(f"profiling {profile} steps from step {first + 1} into {workdir / 'profile'}")
        try:
            with _stop_signals() as stop:
                tools = _Tools(checkpoints, log, heart, trace, reading, stop, workdir)
                state = _loop(run, state, step, tools)
        except Exception as error:
            if jax.process_count() > 1 and not isinstance(error, (Interrupted, Diverged)):
                checkpoints.abandon()  # what is under way waits for processes that may be gone
            raise
        finally:
            trace.close()
            if log is not None:
                log.close()
            checkpoints.close()
    else:
        checkpoints.close()
    path = workdir / "evaluation.json"
    saved = json.loads(path.read_text()) if path.is_file() else {}
    if saved.get("step") == program.steps:
        return {row: [evaluation.Result(**r) for r in results] for row, results in saved["rows"].items()}
    say("evaluating")
    if heart is not None:
        heart.beat(program.steps, "evaluating", now=True)
    rows = evaluate(run, state, workdir, reading)
    if heart is not None:
        heart.beat(program.steps, "done", now=True)
    return rows


def _initial_state(run: Run) -> _program.State:
    """A fresh state, with the encoder of another run where train.initial names one."""
    state, program, config = run.program.init(), run.program, run.config
    if config.train.initial is None:
        return state
    start_from = program.learner.start_from
    if start_from is None:
        raise ValueError(
            f"train.initial needs method simclr or supervised, got {type(config.method).__name__}"
        )
    encoder = one_encoder(*open_run(Path(config.train.initial), reference=config))
    params, statistics = start_from(state["params"], state["statistics"], encoder)
    new = {**state, "params": params, "statistics": statistics}
    new |= {"ema": jax.tree.map(jnp.copy, params)} if "ema" in state else {}
    return jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), new, program.abstract_state())


@dataclasses.dataclass(frozen=True)
class _Tools:
    """What the loop tells, asks and writes to; log and heart are those of the first process only."""

    checkpoints: Checkpoints
    log: Log | None
    heart: _watch.Heartbeat | None
    trace: _watch.Profile
    reading: data.Reading
    stop: dict[str, int]
    workdir: Path


def _loop(run: Run, state: _program.State, step: int, tools: _Tools) -> _program.State:
    config, program = run.config, run.program
    checkpoints, log, heart, reading = tools.checkpoints, tools.log, tools.heart, tools.reading
    chance = {} if program.chance is None else {"chance": float(program.chance())}
    host = data.watched(_batches(run, step, reading), config.train.stall_seconds, reading)
    stream = data.to_devices(host, program.batch_sharding)
    agreement = _processes.Agreement(program.mesh, 1 + _TOLD_AT_ONCE)
    watch: _watch.Watch | None = None
    every = round(config.train.evaluate_every * program.steps_per_epoch)
    pending: list[dict[str, jax.Array]] = []
    refresh = program.learner.refresh
    while step < program.steps:
        if refresh is not None and refresh.due(step, program.steps_per_epoch):
            state = _refreshed(run, state, step, tools.workdir)
        if watch is None:
            batch = next(stream)
            watch = _watch.Watch(program.mesh.size, _flops(run, state, batch), _peak(config))
            watch.restart(step)
        else:
            with watch.data():
                batch = next(stream)
        with tools.trace.step(step):
            state, values = program.step(state, batch)
        tools.trace.after(step, values)
        step += 1
        pending.append(values)
        last = step == program.steps
        stopping = _agreed(tools.stop, agreement, reading, step)
        scoring = every > 0 and step % every == 0 and not last
        saving = last or stopping or scoring or step % config.checkpoint.every_steps == 0
        if saving or step % config.train.log_every == 0:
            fetched = jax.device_get(pending)
            pending = []
            for back, row in enumerate(reversed(fetched)):
                _check_finite(float(row["loss"]), step - back, checkpoints)
            if log is not None and step % config.train.log_every == 0:
                numbers = {name: float(value) for name, value in fetched[-1].items()}
                row = {
                    **numbers,
                    "epoch": step / program.steps_per_epoch,
                    **chance,
                    "learning_rate": float(program.learning_rate(step - 1)),
                    **watch.row(step),
                }
                with watch.log():
                    log.row(step, row)
        if heart is not None:
            heart.beat(step, "evaluating" if scoring or last else "training", now=scoring or last)
        if saving:
            score = _score(run, state, reading) if (scoring or last) and not stopping else None
            if score is not None and log is not None:
                log.score(step, *score)
            value = None if score is None else score[1]
            record = {
                "seed": config.train.seed,
                "epoch": step // program.steps_per_epoch,
                "corrupt": sorted(reading.passed),
            }
            checkpoints.save(step, state, record, value)
            if log is not None:
                log.restart_clock()
            watch.restart(step)
        if stopping:
            checkpoints.wait()
            raise Interrupted(tools.stop["signal"] or signal.SIGTERM, step, program.steps)
    host.close()  # lets the readers go
    return state


def _peak(config: Config) -> float | None:
    """FLOP/s of a device at its best in the precision of the run, where it is known."""
    if config.train.peak_tflops is None and config.train.precision == "float32":
        return None
    return _watch.peak_flops(config.train.peak_tflops)


def _flops(run: Run, state: _program.State, batch: data.Batch) -> float | None:
    """FLOPs of a step where they are of use; XLA counts a loop once, so that pieces of a batch have no count."""
    if jax.process_index() > 0 or run.config.train.microbatch is not None or _peak(run.config) is None:
        return None
    return _watch.step_flops(run.program.step, state, batch)


def open_run(
    workdir: Path, checkpoint: str = "latest", network: str = "config", *, reference: Config | None = None
) -> tuple[Run, _program.State]:
    """A finished or interrupted run, on whatever devices there are.

    Args:
      workdir: folder of the run.
      checkpoint: `latest`, `best`, or a step.
      network: `online` or `momentum` of a method that has both; `config` is what its config says.
      reference: a config with the functions and classes from outside the package that the run uses.

    Raises:
      ValueError: the folder holds no run, or no such checkpoint or network.
      DamagedCheckpoints: the checkpoint cannot be read.
    """
    if not (workdir / "config.json").is_file():
        raise ValueError(f"{workdir} is not the folder of a run: it has no config.json")
    config = load(workdir, reference)
    if network != "config":
        if not isinstance(config.method, methods.Following) or network not in ("online", "momentum"):
            raise ValueError(
                f"--network must be online or momentum, of a method with a momentum encoder; got {network!r} for "
                f"{type(config.method).__name__}"
            )
        method: Any = config.method
        config = dataclasses.replace(config, method=dataclasses.replace(method, evaluate=network))
    if config.examples % jax.device_count():
        config = dataclasses.replace(config, mesh=Mesh(data=1))
    else:
        config = dataclasses.replace(config, mesh=Mesh())
    if not (workdir / "checkpoints").is_dir():
        raise ValueError(
            f"{workdir} has no checkpoint yet; `mvcl train {workdir} --workdir {workdir}` trains it"
        )
    run = prepare(config)
    checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoint.keep)
    try:
        steps = checkpoints.steps()
        named: dict[str, int | None] = {"latest": max(steps, default=None), "best": checkpoints.best()}
        step = named.get(checkpoint, int(checkpoint) if checkpoint.isdecimal() else None)
        if step not in steps:
            have = ", ".join(map(str, steps)) or "none"
            raise ValueError(
                f"--checkpoint must be latest, best or one of the steps {have}; got {checkpoint!r}"
            )
        restored = checkpoints.restore(run.program.abstract_state(), step)
    finally:
        checkpoints.close()
    assert restored is not None
    return run, restored[0]


def one_encoder(run: Run, state: _program.State) -> Any:
    """The evaluated encoder of a run whose method has one.

    Raises:
      ValueError: the method has an encoder for each view.
    """
    encoder = run.program.learner.network(*run.program.evaluated(state)).encoder
    if not hasattr(encoder, "features"):
        raise ValueError(
            f"this takes a run with one encoder; method {type(run.config.method).__name__} has one for each of the "
            f"{run.config.views.k} views here. `mvcl embed` writes what they make of a split"
        )
    return encoder


def embed(run: Run, state: _program.State, split: str, out: Path) -> tuple[int, ...]:
    """Write the features of a split, its labels and class names as .npz; return the shape of the features."""
    features, labels = encode(run, state, (split,))
    if jax.process_index() == 0:
        _save_arrays(
            out,
            features=features[split],
            labels=labels[split],
            class_names=np.asarray(run.splits[split].class_names),
        )
    return features[split].shape


def evaluate(
    run: Run, state: _program.State, workdir: Path | None = None, reading: data.Reading | None = None
) -> dict[str, list[evaluation.Result]]:
    """Measure trained, untrained and raw features by one protocol.

    With a folder, evaluation.json and embeddings.npz are written there. Examples that cannot be read are left out,
    as many as `reading`, by default the config's limit, allows.
    """
    program = run.program
    step = int(state["step"])
    reading = data.Reading(run.config.train.corrupt_limit) if reading is None else reading
    trained, shown = _encode(run, state, None, reading)
    measure = run.config.evaluation.measure
    readable = {**run.splits, **shown}
    rows, size = {"trained encoder": measure(trained, readable)}, _raw_bytes(run)
    if run.config.evaluation.compared:
        fresh = program.init()
        rows["untrained encoder"] = measure(_encode(run, fresh, None, reading)[0], readable)
    if run.config.evaluation.compared and size <= _RAW_BYTES:
        rows["raw input"] = measure(_raw(run, reading), readable)
    elif run.config.evaluation.compared:
        why = f"not measured: the inputs of all splits take {size / 2**30:.0f} GiB as rows of numbers"
        columns = [result.name for result in rows["trained encoder"]]
        rows["raw input"] = [evaluation.Result(name, None, None, why) for name in columns]
    if workdir is not None and jax.process_index() == 0:
        run.config.evaluation.save(trained, readable, workdir)
        last = run.config.evaluation.splits(tuple(run.splits))[-1]
        _save_arrays(
            workdir / "embeddings.npz",
            features=trained[last],
            labels=shown[last].labels,
            class_names=np.asarray(run.splits[last].class_names),
        )
        plain = {row: [dataclasses.asdict(r) for r in results] for row, results in rows.items()}
        _folder.write_whole(workdir / "evaluation.json", json.dumps({"step": step, "rows": plain}, indent=2))
    return rows


def encode(
    run: Run, state: _program.State, splits: tuple[str, ...] | None = None
) -> tuple[Features, Features]:
    """Features and labels of splits, from frozen parameters; None takes those that the evaluation needs."""
    features, shown = _encode(run, state, splits, data.Reading(run.config.train.corrupt_limit))
    return features, {name: split.labels for name, split in shown.items()}


def _encode(
    run: Run, state: _program.State, splits: tuple[str, ...] | None, reading: data.Reading
) -> tuple[Features, dict[str, Any]]:
    """Features of splits, and the splits with the examples that could be read."""
    program, options = run.program, run.config.evaluation
    splits = options.splits(tuple(run.splits)) if splits is None else splits
    apply = jax.tree_util.Partial(program.apply, *program.evaluated(state))
    size = -(-options.batch_size // program.mesh.size) * program.mesh.size
    sharding = program.batch_sharding if program.mesh.size > 1 else None
    features, shown = {}, {}
    for name in splits:
        split = run.splits.get(name)
        if split is None or isinstance(split, data.DomainSplit):
            whole = [n for n, s in run.splits.items() if not isinstance(s, data.DomainSplit)]
            raise ValueError(f"--split must be one of {', '.join(whole)}, got {name!r}")
        features[name], index = evaluation.encode(
            apply, _in_order(run, name, size, reading), batch_size=size, sharding=sharding
        )
        shown[name] = _only(split, index)
    return features, shown


def _only(split: data.Split | data.ViewSplit, index: np.ndarray) -> Any:
    """What an evaluation asks of a split beside features, of these rows: labels, groups, the views that are there."""
    if len(index) == len(split):
        return split
    kept = {"labels": split.labels[index]}
    if isinstance(split, data.ViewSplit):
        of_rows = {"groups": split.groups, "present": split.present}
        kept |= {name: array[index] for name, array in of_rows.items() if array is not None}
    return dataclasses.replace(split, **kept)


def _in_order(run: Run, name: str, size: int, reading: data.Reading) -> Iterator[dict[str, Any]]:
    """Every example once that can be read; each process has its share, and as many batches as the others."""
    stream = _shares(run, name, size, reading)
    return data.watched(stream, run.config.train.stall_seconds, reading)


def _shares(run: Run, name: str, size: int, reading: data.Reading) -> Iterator[dict[str, Any]]:
    split = run.splits[name]
    assert not isinstance(split, data.DomainSplit)
    world, rank = jax.process_count(), jax.process_index()
    share = size // world
    # All splits are shown as the training split is: a program knows one size of image.
    resize = None
    if not isinstance(split, data.ViewSplit) and run.outline.image_shape is None:
        resize = _host_resize(run)
    in_memory = (split.views if isinstance(split, data.ViewSplit) else split.images) is not None

    def read(rows: np.ndarray) -> tuple[np.ndarray, list[Any]]:
        kept, examples = [], []
        for row in map(int, rows):
            try:
                with reading.at(data.named(split, name, row)):
                    example: Any = split.read(row)
            except data.CorruptExample as error:
                reading.corrupt(name, row, 0, error)
                continue
            kept.append(row)
            examples.append(example if resize is None else resize(example))
        return np.asarray(kept, np.int64), examples

    for start in range(0, len(split), size):
        rows = np.arange(start + rank * share, min(start + (rank + 1) * share, len(split)))
        if in_memory and resize is None:
            inputs: Any = data.given(split, rows) if isinstance(split, data.ViewSplit) else split.take(rows)
            yield {"inputs": inputs, "index": rows}
            continue
        rows, examples = read(rows)
        if isinstance(split, data.ViewSplit):
            views = zip(*examples) if examples else ([] for _ in split.shapes)
            blank = [np.zeros((0, *shape), np.float32) for shape in split.shapes]
            stacked = tuple(np.stack(v) if (v := list(view)) else b for view, b in zip(views, blank))
            inputs = data.given(split, rows, stacked)
        elif examples:
            inputs = np.stack(examples)
        else:
            shape = run.outline.image_shape or (8, 8, run.outline.channels)
            none = np.zeros(shape, np.uint8)
            inputs = (none if resize is None else resize(none))[None][:0]
        yield {"inputs": inputs, "index": rows}


def _score(run: Run, state: _program.State, reading: data.Reading) -> tuple[str, float] | None:
    if type(run.config.evaluation).score is evaluation.Evaluation.score:
        return None
    features, shown = _encode(run, state, None, reading)
    return run.config.evaluation.score(features, {**run.splits, **shown})


def _refreshed(run: Run, state: _program.State, step: int, workdir: Path) -> _program.State:
    """The state with what the method takes from the whole training split, which a line of refresh.jsonl shows."""
    program, split = run.program, run.splits["train"]
    if not isinstance(split, data.ViewSplit):
        raise ValueError(
            f"method {type(run.config.method).__name__} needs examples that hold their views, as tables of features do"
        )
    assert program.learner.refresh is not None
    inputs = data.given(split, np.arange(len(split)))
    statistics, record = program.learner.refresh.compute(
        state["params"],
        state["statistics"],
        inputs["views"],
        inputs.get("present"),
        step,
        program.steps_per_epoch,
    )
    place = program.abstract_state()["statistics"]
    statistics = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), statistics, place)
    if jax.process_index() == 0:
        plain = {name: np.asarray(value).tolist() for name, value in record.items()}
        _folder.append_line(workdir / "refresh.jsonl", {"step": step, **plain})
    return {**state, "statistics": statistics}


def _raw_bytes(run: Run) -> int:
    """Size of what `_raw` gives."""
    outline, side = run.outline, run.config.policies[0].image_size
    numbers = (
        side * side * outline.channels
        if outline.view_shapes is None
        else sum(math.prod(shape) for shape in outline.view_shapes)
    )
    return sum(
        4 * numbers * len(run.splits[name]) for name in run.config.evaluation.splits(tuple(run.splits))
    )


def _raw(run: Run, reading: data.Reading) -> Features:
    """The inputs themselves, one row each: images at the encoder's size, views side by side."""
    split = run.splits["train"]

    def flat(inputs: Any) -> jax.Array:
        parts = inputs["views"] if isinstance(inputs, dict) else (view(inputs),)
        rows = [jnp.nan_to_num(x).reshape((x.shape[0], -1)) for x in parts]
        return jnp.concatenate(rows, axis=1)

    view = _program.evaluation_view(run.config, split.image_shape)
    size = run.config.evaluation.batch_size * jax.process_count()
    sharding = run.program.batch_sharding if jax.process_count() > 1 else None
    apply = jax.tree_util.Partial(flat)
    return {
        name: evaluation.encode(
            apply, _in_order(run, name, size, reading), batch_size=size, sharding=sharding
        )[0]
        for name in run.config.evaluation.splits(tuple(run.splits))
    }


def _batches(run: Run, first_step: int, reading: data.Reading | None = None) -> Iterator[data.Batch]:
    config, split = run.config, run.splits["train"]
    crop = None
    if not isinstance(split, data.ViewSplit) and split.image_shape is None:

        def crop(image: Any, epoch: int, index: int) -> np.ndarray:
            return augment.host_crop(image, config.policies, config.train.seed, epoch, index)

    return data.batches(
        split,
        batch_size=config.examples,
        seed=config.train.seed,
        first_step=first_step,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        threads=config.train.threads,
        crop=crop,
        reading=reading,
    )


def _host_resize(run: Run) -> Callable[[np.ndarray], np.ndarray]:
    policy = _program.evaluation_policy(run.config, None)
    return lambda image: augment.host_crop(image, [policy], 0, 0, 0)[0]


def _save_views(run: Run, workdir: Path, count: int = 8) -> None:
    """Some examples and their views, for the report."""
    split = run.splits["train"]
    assert not isinstance(split, data.ViewSplit)
    readable: list[int] = []
    groups: list[Any] = []
    for row in range(len(split)):
        try:
            group = split.read_views(row, 0) if isinstance(split, data.DomainSplit) else split.read(row)
        except data.CorruptExample:
            continue  # the loop says so when its turn comes
        readable.append(row)
        groups.append(group)
        if len(readable) == count:
            break
    rows, epoch = np.asarray(readable), np.zeros(len(readable), np.int32)
    of_domains = isinstance(split, data.DomainSplit)
    images = [np.asarray(group[0]) if of_domains else group for group in groups]
    if split.image_shape is None:
        policies, seed = run.config.policies, run.config.train.seed
        batch = np.stack([augment.host_crop(x, policies, seed, 0, int(r)) for r, x in zip(rows, groups)])
        images = [_host_resize(run)(x) for x in images]
    else:
        batch = np.stack(images)
    drawn = run.program.views({"images": batch, "index": rows.astype(np.int32), "epoch": epoch})
    policies = run.config.policies
    shown = np.stack([np.asarray(drawn)[:, v] * p.std + p.mean for v, p in enumerate(policies)], axis=1)
    shown = np.round(np.clip(shown, 0, 1) * 255).astype(np.uint8)
    originals = np.stack(images)
    if originals.dtype != np.uint8:
        originals = np.round(originals * 255).astype(np.uint8)
    _save_arrays(
        workdir / "views.npz",
        images=originals,
        views=shown,
        labels=split.labels[rows],
        class_names=np.asarray(split.class_names),
    )


def _save_arrays(path: Path, **arrays: Any) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    _folder.write_whole(path, buffer.getvalue())


def _check_finite(loss: float, step: int, checkpoints: Checkpoints) -> None:
    if math.isfinite(loss):
        return
    good = [s for s in checkpoints.steps() if s < step]
    last = (
        f"the last good checkpoint is that of step {good[-1]}" if good else "no checkpoint was written before"
    )
    raise Diverged(
        f"the loss is {loss} at step {step}; {last}. Look at the learning rate (too high?), the temperature (too "
        "low?), --train.precision float32 and --optimizer.clip-norm 1.0, and at the images of that step"
    )


@contextmanager
def _stop_signals() -> Iterator[dict[str, int]]:
    """SIGTERM and SIGINT are noted, and the loop stops after the step it is in."""
    stop = {"signal": 0}

    def note(number: int, _: Any) -> None:
        if stop["signal"] == number == signal.SIGINT:
            raise KeyboardInterrupt  # twice: now
        stop["signal"] = number

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _agreed(stop: dict[str, int], agreement: _processes.Agreement, reading: data.Reading, step: int) -> bool:
    """Whether any process was told to stop, so that all save the same step; and share what cannot be read."""
    words = np.zeros(1 + _TOLD_AT_ONCE, np.int32)
    words[0] = stop["signal"]
    news = reading.news(step, _TOLD_AT_ONCE)
    words[1 : 1 + len(news)] = np.asarray(news, np.int32) + 1
    heard = agreement.exchange(words)
    reading.agree(int(word) - 1 for word in heard[:, 1:].flat if word)
    return bool(heard[:, 0].any())


def compilation_cache() -> None:
    """Keep compiled programs between runs, in MVCL_CACHE or ~/.cache/mvcl; not of several CPU devices.

    XLA's CPU backend orders the collectives of a program by an object that they share. In a program that is read
    back each has one of its own (jaxlib 0.10.2): nothing keeps two from running at once, and runs aborted.
    """
    if jax.default_backend() == "cpu" and jax.device_count() > 1:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    folder = os.environ.get("MVCL_CACHE") or str(Path.home() / ".cache" / "mvcl")
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
