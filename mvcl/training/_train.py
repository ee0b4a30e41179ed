"""Train a config: in a folder, with several seeds, or from the encoder of another run."""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import jax

from mvcl import _buckets, _checks, _progress, augment, data, evaluation, methods, models
from mvcl.training import _folder, _processes
from mvcl.training._config import Config, Train, Views
from mvcl.training._evaluate import Table
from mvcl.training._optimizers import Sgd
from mvcl.training._program import State
from mvcl.training._run import batches, prepare, save_views
from mvcl.training._serialise import load, replace_at
from mvcl.training._session import Clock, Diverged, Page, Session

Hook = Callable[[int, State, dict[str, jax.Array]], None]
"""Called with the number of steps done, the state and the last step's values: before the first step of a session, with
no values, and after each."""
_UNPROFILED = 3  # steps before a profile starts: they compile and fill queues


def train(
    config: Config,
    workdir: Path,
    *,
    splits: Mapping[str, data.Split] | None = None,
    hooks: Sequence[Hook] = (),
    profile: int = 0,
    page: Page = None,
) -> Table:
    """Train a config in a folder, from the newest checkpoint if there is one, and evaluate.

    Args:
      config: the experiment.
      workdir: folder of the run.
      splits: the data, `train` and what the evaluation needs; None: config.data is opened.
      hooks: called as `Hook` says, on every process. State and values are arrays on devices.
      profile: number of steps to trace into workdir/profile.
      page: writes the page of the run and returns its path; process 0 calls it after each evaluation during training.
        Its errors are logged.

    Returns:
      The evaluation table: row name -> results.

    Raises:
      ValueError: the config is invalid, the folder belongs to another config, or none of its checkpoints can be read.
      Diverged: the loss became NaN or infinite.
      Interrupted: a process received SIGTERM or SIGINT; the state is saved.
      CorruptExample: more than train.corrupt_limit examples cannot be read.
      RuntimeError: no batch arrived within train.stall_seconds, or another process of the run has ended.
    """
    workdir, first = _buckets.path(workdir), jax.process_index() == 0
    clock = Clock(workdir / "time.json")
    run, called = prepare(config, splits), [*hooks]
    size, side, most = run.config.policies[0].image_size, run.outline.side, run.config.train.batch_size
    if first and 0 < 2 * side < size:
        size_of = f"views of {size} pixels enlarge images of {side}"
        _progress.line(f"warning: {size_of}; --views.policy.image-size {side} does not")
    if first and most < config.train.batch_size:
        _progress.line(f"warning: a batch has all {most} examples, which are fewer than train.batch_size")
    if run.program.chance is not None:
        jax.eval_shape(run.program.chance)  # an objective's options are checked before anything is written
    stop = _processes.Stop(run.program.mesh)
    with (
        _processes.losses_named(workdir) if jax.process_count() > 1 else nullcontext(),
        _processes.handling(stop.handle),
        _folder.locked(workdir) if first else nullcontext(),
        ExitStack() as files,
    ):
        if first:
            _folder.claim(workdir, run.config, run.splits)
        session = Session(run, workdir, clock, stop, files, page)
        if (table := session.begin()) is not None:
            return table
        if first:
            save_views(session.run, workdir / "views.npz")
            if profile:
                tracing = traced(workdir / "profile", profile, session.step, run.program.steps)
                called.append(files.enter_context(tracing))
        loop(session, called)
        return session.evaluate()


def loop(session: Session, hooks: list[Hook]) -> None:
    """Train from the session's step to the end of the run. A step that is measured is saved first: if this is stopped,
    the next session begins with it. Errors are those of `train`; at `Interrupted` all processes saved the same step.
    """
    clock, program, log = session.clock, session.run.program, session.log
    stream = batches(session.run, session.step)
    session.measure(session.due())
    pending: list[dict[str, jax.Array]] = []  # values of the steps that are not known to be finite
    with clock.phase("compiling"), _progress.during("compiling the chance level"):
        chance = {"chance": program.chance()} if program.chance and session.step < program.steps else {}
    doing = "compiling"
    if session.step < program.steps and program.mesh.devices.flat[0].platform != "cpu":
        from mvcl.training import _memory

        if large := _memory.warning(session.run):
            _progress.line(f"warning: {large}")
    for hook in hooks:
        hook(session.step, session.state, {})
    with clock.phase("training"), _progress.during("training"):
        while session.step < program.steps:
            session.refresh()
            with clock.phase("data"):
                batch = next(stream)
            with clock.phase(doing), jax.profiler.StepTraceAnnotation("train", step_num=session.step):
                session.state, values = program.step(session.state, batch)
            session.step, doing = session.step + 1, "training"
            pending.append(values)
            for hook in hooks:
                hook(session.step, session.state, values)
            stopping, due = session.stop.agreed(), session.due()
            if due or stopping:
                rows, pending = jax.device_get(pending), []
                if not all(math.isfinite(row["loss"]) for row in rows):
                    raise _diverged([float(row["loss"]) for row in rows], session)
                if log is not None and "log" in due:
                    with clock.phase("logging"):
                        row = {name: float(value) for name, value in (rows[-1] | chance).items()}
                        row["epoch"] = session.step / program.steps_per_epoch
                        row["learning_rate"] = float(program.learning_rate(session.step - 1))
                        log.row(session.step, row)
            if session.step == program.steps:
                session.refresh()
            if stopping or "save" in due:
                session.save()
            if stopping:
                session.checkpoints.wait()
                raise _processes.Interrupted(stopping, session.step, program.steps)
            session.measure(due)
    stream.close()  # stops the readers


def _diverged(losses: list[float], session: Session) -> Diverged:
    """The error for the first loss, of the last steps, that is not finite."""
    place = next(place for place, loss in enumerate(losses) if not math.isfinite(loss))
    step = session.step - len(losses) + 1 + place
    good = [s for s in session.checkpoints.steps() if s < step]
    last = f"the last checkpoint before it is step {good[-1]}" if good else "there is no checkpoint before it"
    return Diverged(
        f"the loss is {losses[place]} at step {step}; {last}. Try a lower learning rate, a higher temperature, "
        "--train.precision float32 or --optimizer.clip-norm 1.0, and check the images of that step"
    )


@contextmanager
def traced(folder: Path, steps: int, step: int, last: int) -> Iterator[Hook]:
    """A hook that traces `steps` steps of a session from `step` to `last` into a folder, for XProf and Perfetto."""
    begin = max(min(step + _UNPROFILED, last - steps), step)
    end, remote = min(begin + steps, last), _buckets.is_remote(folder)
    with tempfile.TemporaryDirectory(prefix="mvcl_") as temporary, ExitStack() as trace:
        written = Path(temporary) if remote else folder

        def hook(step: int, state: State, values: dict[str, jax.Array]) -> None:
            if step == begin < end:
                if remote:
                    trace.callback(_buckets.upload, written, folder)
                trace.enter_context(jax.profiler.trace(str(written), create_perfetto_trace=True))
            elif step == end:
                jax.block_until_ready(values)
                trace.close()

        yield hook


def finetune_config(run: Path, source: data.Source | None = None, replicas: int = 8) -> Config:
    """The default config of `mvcl finetune`: train the encoder and a new linear layer on labelled images.

    Shidani 2024, Table 2; docs/papers/shidani.md says which of its values these are. k is the number of repeated
    augmentations: a batch has train.batch_size images and k views of each, and an epoch shows each image k times.

    Args:
      run: folder of the run whose encoder is fine-tuned.
      source: labelled images; None uses the run's source.
      replicas: groups of views with batch statistics of their own, as the table's BatchNorm is not synchronised over
        replicas. The paper does not give their number; 8 of 128 views is ours.
    """
    pretrained = load(run)
    pretraining, encoder = pretrained.policies[0], pretrained.encoder
    if isinstance(encoder, models.ResNet) and encoder.norm == "batch":
        encoder = dataclasses.replace(encoder, batch_groups=replicas, batch_rows="consecutive")
    policy = augment.evaluation(  # paper: no other step
        pretraining.image_size,
        random_crop=True,  # ours: DeiT's, as the next three
        crop_scale=(0.08, 1.0),
        crop_ratio=(3 / 4, 4 / 3),
        flip_probability=0.5,
        rand_augment_ops=2,  # paper: RandAugment 9/0.5 on timm's scale of 10; here it is of 30
        rand_augment_magnitude=27.0,
        rand_augment_deviation=1.5,
        rand_augment_kind="timm",  # paper: DeiT's names
        rand_augment_probability=1.0,
        erase_probability=0.25,  # paper
        erase_scale=(0.02, 1 / 3),  # ours: DeiT's
        mean=pretraining.mean,
        std=pretraining.std,
    )
    return Config(
        data=pretrained.data if source is None else source,
        views=Views(k=2, policy=policy, strategy="growing"),  # paper: 2 repeated augmentations
        encoder=encoder,
        head=models.IdentityHead(),
        method=methods.Supervised(mixup=0.8, cutmix=1.0, label_smoothing=0.0, zero_head=True),  # paper
        optimizer=Sgd(  # paper; 256 views are 128 images with 2 views each
            learning_rate=1e-3,
            end_learning_rate=0.0,
            reference_batch=128,
            scaling="linear",
            momentum=0.9,
            warmup_epochs=5,
            weight_decay=0.0,
        ),
        train=Train(epochs=300, batch_size=512, precision="float32", evaluate_every=0, initial=str(run)),
        evaluation=evaluation.Predictions(features="head"),
    )


def train_seeds(config: Config, folder: Path, seeds: int = 3, *, page: Page = None) -> Table:
    """Train a config once per seed, each in its own folder, and average the evaluation tables.

    The runs are in `seed0`, `seed1`, ... of the folder, from train.seed on; existing ones are resumed, finished ones
    are read. The table has means and standard deviations over seeds. `page` and errors are as for `train`, for all
    seeds; also `ValueError` for less than one.
    """
    _checks.whole("seeds", seeds)
    tables = []
    for seed in _progress.track(range(config.train.seed, config.train.seed + seeds), "seed", seeds, "seeds"):
        tables.append(train(replace_at(config, ("train", "seed"), seed), folder / f"seed{seed}", page=page))
    columns = {row: zip(*(table[row] for table in tables), strict=True) for row in tables[0]}
    return {row: [_mean(results) for results in of] for row, of in columns.items()}


def _mean(results: tuple[evaluation.Result, ...]) -> evaluation.Result:
    first, values = results[0], [result.value for result in results if result.value is not None]
    if len(values) < len(results):
        return next(result for result in results if result.value is None)
    how = f"{first.protocol}, mean and standard deviation of {len(values)} seeds"
    return evaluation.averaged(first.name, values, how, first.better)
