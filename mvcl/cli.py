"""The `mvcl` command: parse, call, print."""

import dataclasses
import difflib
import errno
import gc
import inspect
import itertools
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from mvcl import _buckets, _choices, _configs, _options, _progress
from mvcl._progress import write_line

_OVERVIEW = """usage: mvcl COMMAND ...

Multi-view contrastive representation learning.

  mvcl train CONFIG [--workdir DIR] [FIELD:CHOICE ...] [--FIELD VALUE ...]
                             train a config or resume its run; then evaluate and report
  mvcl train CONFIG --help   describe every field of a config
  mvcl train CONFIG --dry-run
                             estimate FLOPs and memory of a step
  mvcl train CONFIG --profile 20
                             trace 20 steps for XProf and Perfetto
  mvcl evaluate RUN          print the evaluation table of a run
  mvcl finetune RUN [data:transfer --data.name NAME]
                             fine-tune the whole encoder, on the run's data or a transfer set
  mvcl embed RUN --split test --out z.npz
                             write the features of a split
  mvcl geometry RUN          measure how the embeddings of the views fill the sphere
  mvcl report RUN ...        write report.html for one run, or for several side by side
  mvcl study NAME [--scale small] [--seeds N]
                             run a table or figure of a paper, and write its page
  mvcl study --list          list the studies with their costs
  mvcl export RUN --out encoder.safetensors
                             write the encoder's weights under torchvision's or timm's names
  mvcl data prepare NAME     write a data set as ArrayRecord files
  mvcl configs               list the configs of the project
  mvcl configs --copy CONFIG [--out FILE.py]
                             write a copy of one to edit

Every command takes --help, and --debug for a full traceback of an error.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 for success, 2 for invalid input, 1 for a failure at run time."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    try:
        return _dispatch(arguments)
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        write_line("mvcl: interrupted", sys.stderr)
        return 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        write_line(f"mvcl: {_one_line(error)}", sys.stderr)
        if argv is None and _needs_hard_exit(error):  # os._exit only as a command, not for a Python caller
            sys.stdout.flush()
            os._exit(_exit_code(error))
        return _exit_code(error)


def _dispatch(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "evaluate": _evaluate,
        "finetune": _finetune,
        "embed": _embed,
        "geometry": _geometry,
        "report": _report,
        "export": _export,
        "data": _data,
        "configs": _list_or_copy_configs,
        "study": _run_study,
    }
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_OVERVIEW, end="")
        return 0
    if arguments[0] == "--version":
        from mvcl import __version__

        print(__version__)
        return 0
    if arguments[0] not in commands:
        close = difflib.get_close_matches(arguments[0], commands, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ValueError(f"unknown command {arguments[0]!r}; {hint}Commands: {', '.join(commands)}")
    return commands[arguments[0]](arguments[1:])


def _parse(kind: type, command: str, arguments: list[str]) -> Any:
    import tyro

    return _opened(tyro.cli(kind, args=arguments, prog=f"mvcl {command}"))


def _opened(options: Any) -> Any:
    """The options with paths in buckets opened."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    paths: dict[str, Any] = {
        name: _buckets.path(value) for name, value in values.items() if isinstance(value, Path)
    }
    paths |= {
        name: tuple(map(_buckets.path, value))
        for name, value in values.items()
        if isinstance(value, tuple) and value and isinstance(value[0], Path)
    }
    return dataclasses.replace(options, **paths)


def _train(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        if set(arguments) & {"-h", "--help"}:
            print(
                "usage: mvcl train CONFIG [--workdir DIR] [--dry-run] [--profile N] [FIELD:CHOICE ...] "
                "[--FIELD VALUE ...]\n"
            )
            print(
                "CONFIG is a config of the project (`mvcl configs` lists them), a file FILE.py or FILE.py:VARIANT, "
                "a saved config.json, or the folder of a run."
            )
            print("`mvcl train CONFIG --help` describes every field of that config.")
            return 0
        raise ValueError(
            "mvcl train needs a config first: mvcl train CONFIG --workdir DIR; `mvcl configs` lists them"
        )
    path, variant = _configs.find(arguments[0])  # before the imports, which take a second
    _choices.check(arguments[1:])
    _options.check(path, arguments[1:], arguments[0])
    name = _default_name(path, variant)
    _quiet()
    from mvcl import training

    loaded = training.load(path if path.suffix != ".py" else f"{path}:{variant}")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Train:
        workdir: Path = Path("runs") / name
        """Folder of the run: config, checkpoints, logs, report. Repeating the command resumes the run."""
        dry_run: bool = False
        """Compile the step at full size, print its FLOPs and memory, and exit."""
        profile: int = 0
        """Number of steps to trace into WORKDIR/profile, for XProf and Perfetto."""
        profiler_port: int | None = None
        """Port of the first process through which TensorBoard and XProf capture traces while the run goes on."""
        seeds: int = 1
        """Number of runs. More than one: WORKDIR/seed0 and so on, from train.seed, and WORKDIR/results.json with the
        mean and standard deviation of each result."""
        distributed: training.Distributed = dataclasses.field(default_factory=training.Distributed)
        """Address of the other processes, where the environment does not give it."""

    parsed = _with_config(Train, loaded, f"train {arguments[0]}", arguments[1:], "Train this config.")
    _start_jax(parsed.distributed)
    if parsed.dry_run:
        print(training.dry_run(training.check(parsed.config)))
        return 0
    if parsed.profile and parsed.seeds > 1:
        raise ValueError(f"--profile traces one run, got --seeds {parsed.seeds}; use --seeds 1")
    if parsed.profiler_port is not None:
        training.profiler_server(parsed.profiler_port)
    seeds = range(parsed.config.train.seed, parsed.config.train.seed + parsed.seeds)
    runs = [parsed.workdir] if parsed.seeds == 1 else [parsed.workdir / f"seed{seed}" for seed in seeds]

    def page() -> Path:
        from mvcl import report  # of a run that has begun: its packages take a second

        return report.write_report(
            [run for run in runs if (run / "config.json").is_file()], parsed.workdir / "report.html"
        )

    if parsed.seeds == 1:
        rows = training.train(parsed.config, parsed.workdir, profile=parsed.profile, page=page)
    else:
        rows = training.train_seeds(parsed.config, parsed.workdir, parsed.seeds, page=page)
    import jax

    from mvcl import evaluation, report

    if jax.process_index() == 0:
        with _progress.during("writing the report"):
            written = report.write_report(runs, parsed.workdir / "report.html")
        if parsed.seeds > 1:
            plain = {row: [dataclasses.asdict(result) for result in results] for row, results in rows.items()}
            from mvcl import _files

            _files.write_whole(parsed.workdir / "results.json", json.dumps(plain, indent=1) + "\n")
        print(f"\n{evaluation.evaluation_table(rows)}\n\nreport: {written}")
    return 0


def _evaluate(arguments: list[str]) -> int:
    from mvcl._commands import Evaluate

    options = _parse(Evaluate, "evaluate", arguments)
    _run_folder(options.run)
    _start_jax()
    from mvcl import evaluation, training

    run, state = training.open_run(
        options.run, options.checkpoint, options.network, reference=_reference(options.config)
    )
    as_trained = options.checkpoint == "latest" and options.network == "config"
    rows = training.evaluate(run, state, options.run if as_trained else None)
    print(f"step {int(state['step'])} of {options.run}\n\n{evaluation.evaluation_table(rows)}")
    return 0


def _with_config(kind: type, config: Any, command: str, arguments: list[str], summary: str) -> Any:
    """Parse the options of a command together with the fields of a config; the latter are the field `config`."""
    import tyro

    from mvcl import training

    config, rest = training.choose_all(config, arguments)
    field = ("config", Annotated[training.Config, tyro.conf.arg(name="")], dataclasses.field(default=config))
    listing = "; ".join(f"{name}: {', '.join(table)}" for name, table in training.CHOICES.items())
    with training.registry:
        parsed: Any = tyro.cli(
            dataclasses.make_dataclass("Options", [field], bases=(kind,), frozen=True, kw_only=True),
            args=rest,
            prog=f"mvcl {command}",
            description=f"{summary} Fields with named choices (FIELD:CHOICE): {listing}.",
            config=(tyro.conf.AvoidSubcommands,),
        )
    return _opened(parsed)


def _finetune(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        if set(arguments) & {"-h", "--help"}:
            print(
                "usage: mvcl finetune RUN [--config FILE] [--seeds N] [data:transfer --data.name NAME] "
                "[--FIELD VALUE ...]\n"
            )
            print("Train the encoder of a run and a new linear layer on labelled images, and evaluate them.")
            print("--config is the config file of a run that uses functions or classes of its own.")
            print("`mvcl finetune RUN --help` describes every field.")
            return 0
        raise ValueError("mvcl finetune needs a run folder as its first argument: mvcl finetune RUN")
    run = _run_folder(_buckets.path(arguments[0]))
    _choices.check(arguments[1:])
    _quiet()
    from mvcl import _files, data, evaluation, training

    rest, reference = arguments[1:], None
    if "--config" in rest:  # read first: the defaults of all other options come from the run
        place = rest.index("--config")
        if place + 1 == len(rest):
            raise ValueError("--config must be followed by a config file: --config FILE.py")
        reference = _reference(rest[place + 1])
        del rest[place : place + 2]

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Finetune:
        workdir: Path | None = None
        """Folder of results.json and of one run per seed. Repeating the command resumes the runs. None: RUN/finetune
        for the run's own data, RUN/finetune_DATA for other data, such as RUN/finetune_transfer_food101."""
        seeds: int = 3
        """Number of runs; their mean and standard deviation are reported."""

    base = training.finetune_config(run, reference=reference)
    parsed = _with_config(
        Finetune, base, f"finetune {run}", rest, "Fine-tune the encoder of a run on labelled images."
    )
    _start_jax()
    own = parsed.config.data == base.data
    workdir = parsed.workdir or run / (
        "finetune" if own else f"finetune_{data.folder_name(parsed.config.data)}"
    )
    results = training.finetune(parsed.config, workdir, parsed.seeds, reference=reference)
    out = workdir / "results.json"
    _files.write_whole(out, json.dumps([dataclasses.asdict(result) for result in results], indent=1) + "\n")
    print(f"\n{evaluation.evaluation_table({'fine-tuned': results})}\n\nresults: {out}")
    return 0


def _embed(arguments: list[str]) -> int:
    from mvcl._commands import Embed

    options = _parse(Embed, "embed", arguments)
    _run_folder(options.run)
    _start_jax()
    from mvcl import evaluation, training

    run, state = training.open_run(
        options.run,
        options.checkpoint,
        options.network,
        output=options.output,
        reference=_reference(options.config),
    )
    shape, measures = training.embed(run, state, options.split, options.out, views=options.views)
    size = " x ".join(map(str, shape))
    print(f"{options.out}: features {size} of split {options.split}, step {int(state['step'])}")
    print(f"\n{evaluation.evaluation_table({run.config.evaluation.features: measures})}")
    return 0


def _geometry(arguments: list[str]) -> int:
    from mvcl._commands import Geometry

    options = _parse(Geometry, "geometry", arguments)
    _run_folder(options.run)
    if options.out is not None and options.out.suffix != ".json":
        raise ValueError(f"--out must be a .json file, got {options.out}")
    _start_jax()
    from mvcl import evaluation, report, training

    run, state = training.open_run(
        options.run, options.checkpoint, options.network, reference=_reference(options.config)
    )
    as_trained = options.checkpoint == "latest" and options.network == "config"
    out = options.run / "geometry.json" if options.out is None and as_trained else options.out
    found = training.geometry(
        run, state, out, split=options.split, views=options.views, examples=options.examples
    )
    print(f"step {found.step} of {options.run}, {found.examples:,} examples of split {found.split}\n")
    print(evaluation.evaluation_table(found.results()))
    if out is not None:
        with _progress.during("drawing the pictures"):
            picture = report.write_geometry(out, out.with_suffix(".svg"))
        print(f"\n{out}\n{picture}")
    return 0


def _report(arguments: list[str]) -> int:
    from mvcl._commands import Report

    options = _parse(Report, "report", arguments)
    if not options.runs:
        raise ValueError("mvcl report needs a folder: mvcl report RUN [RUN ...]")
    for run in options.runs:
        _run_folder(run)
    from mvcl import report

    _collect_garbage()
    single = options.runs[0] / "report.html" if len(options.runs) == 1 else Path("report.html")
    with _progress.during("writing the report"):
        page = report.write_report(list(options.runs), options.out or single)
    print(page)
    return 0


def _export(arguments: list[str]) -> int:
    from mvcl._commands import Export

    options = _parse(Export, "export", arguments)
    _run_folder(options.run)
    _start_jax()
    from mvcl import models, training

    run, state = training.open_run(
        options.run, options.checkpoint, options.network, reference=_reference(options.config)
    )
    encoder = training.one_encoder(run, state)
    with _progress.during(f"writing {options.out}"):
        models.export(encoder, run.config.encoder, options.out)
    print(f"{options.out}: {models.parameter_count(encoder):,} parameters of step {int(state['step'])}")
    return 0


def _data(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: mvcl data prepare NAME [--OPTION VALUE ...]\n\nWrite a data set as ArrayRecord files.")
        print(
            "NAME is a tfds data set, or domainnet, eeg, sentiment or transfer; `mvcl data prepare eeg --help`."
        )
        return 0
    if arguments[0] != "prepare":
        raise ValueError(f"unknown command data {arguments[0]!r}; use mvcl data prepare NAME")
    from mvcl import data

    _collect_garbage()
    if arguments[1:] and arguments[1] in data.PREPARERS:
        preparer = _parse(data.PREPARERS[arguments[1]], f"data prepare {arguments[1]}", arguments[2:])
        print(preparer.run())
        return 0
    from mvcl._commands import Prepare

    options = _parse(Prepare, "data prepare", arguments[1:])
    print(data.prepare(options.name, options.directory))
    return 0


def _list_or_copy_configs(arguments: list[str]) -> int:
    if not arguments:
        return _list_configs()
    import tyro

    from mvcl._commands import Configs

    options = tyro.cli(Configs, args=arguments, prog="mvcl configs")  # its path is none in a bucket
    if options.copy is None:
        if options.out is not None:
            raise ValueError("--out is the file of a copy: mvcl configs --copy CONFIG --out FILE.py")
        return _list_configs()
    out, command = _configs.copy(options.copy, options.out)
    print(f"{out}\n\n  {shlex.join(command)}")
    return 0


def _list_configs() -> int:
    for name, file in _configs.names().items():
        print(f"{name}\n  {_configs.summary(file)}")
        found = {f"{name}:{variant}": text for variant, text in _configs.variants(file).items()}
        found.pop(f"{name}:get_config", None)  # the default, listed by the name alone
        width = max(map(len, found), default=0)
        for variant, text in found.items():
            print(f"    {variant:<{width}}  {text}")
    return 0


def _run_study(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        return _list_studies(arguments)
    _quiet()
    from mvcl import studies

    opened, options = _opened_study(studies.find(arguments[0]), arguments)
    folder = options.workdir or Path("runs") / "studies" / f"{opened.name}_{opened.scale}"
    _start_jax()
    if options.dry_run:
        print(studies.overview(opened, folder))
        return 0
    if options.worker:
        return int(studies.run(opened.study, folder, again=options.again) > 0)
    page, unfinished = studies.run_study(opened, folder, options)
    print(f"\n{page.read_text()}\npage: {page}")
    return int(unfinished > 0)


def _opened_study(file: Path, arguments: list[str]) -> tuple[Any, Any]:
    """The study at the scale that the arguments ask for, and the options of the command."""
    import docstring_parser
    import tyro

    from mvcl import studies

    functions = studies.scales(file)
    default = next(scale for scale in ("small", "smoke", "paper") if scale in functions)
    asked = [value for name, value in itertools.pairwise(arguments) if name == "--scale"]
    scale = asked[-1] if asked else default
    if scale not in functions:
        raise ValueError(f"--scale of {file.stem} must be one of {', '.join(functions)}, got {scale!r}")
    function = functions[scale]
    described = {
        item.arg_name: item.description for item in docstring_parser.parse(function.__doc__ or "").params
    }
    fields: list[Any] = [
        (
            name,
            Annotated[parameter.annotation, tyro.conf.arg(help=described.get(name))],
            dataclasses.MISSING if parameter.default is parameter.empty else parameter.default,
        )
        for name, parameter in studies.parameters(function).items()
    ]
    fields = [(n, kind, dataclasses.field(default=value, kw_only=True)) for n, kind, value in fields]
    seeds = inspect.signature(function).parameters["seeds"].default
    fields += [("scale", Literal[tuple(functions)], dataclasses.field(default=scale, kw_only=True))]
    fields += [("seeds", int, dataclasses.field(default=seeds, kw_only=True))]
    kind = dataclasses.make_dataclass("Options", fields, bases=(studies.Options,), frozen=True)
    prog = f"mvcl study {arguments[0]}"
    options: Any = tyro.cli(kind, args=arguments[1:], prog=prog, description=_configs.summary(file))
    for name in ("workdir", "write"):
        if ":/" in str(getattr(options, name)):  # a bucket
            raise ValueError(f"--{name} of a study must be a folder on a disk, got {getattr(options, name)}")
    options = _opened(options)
    given = {name: getattr(options, name) for name in studies.parameters(function)}
    return studies.open_study(file, scale, options.seeds, given), options


def _list_studies(arguments: list[str]) -> int:
    if arguments != ["--list"]:
        from mvcl._commands import Studies

        _parse(Studies, "study", arguments)
    _quiet()
    from mvcl import studies

    for file in studies.study_files():
        print(f"{file.stem}\n  {_configs.summary(file)}")
        for scale, cost in studies.costs(file).items():
            print(f"    {scale:6} {cost}")
    return 0


def _run_folder(run: Path) -> Path:
    """The folder; raises `ValueError` if it is not that of a run."""
    if not (run / "config.json").is_file():
        raise ValueError(f"{run} is not a run folder: it has no config.json")
    return run


def _reference(config: str | None) -> Any:
    """The config given by --config, which holds functions and classes from outside mvcl."""
    from mvcl import training

    return None if config is None else training.load(config)


def _default_name(config: Path, variant: str = "get_config") -> str:
    name = config.parent.name if config.name == "config.json" else config.stem
    return name if variant == "get_config" else f"{name}-{variant}"


def _quiet() -> None:
    """Silence the logs of jax's libraries; errors still raise exceptions. Call before jax is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import absl.logging

    absl.logging.set_verbosity(absl.logging.FATAL)


def _start_jax(distributed: Any = None) -> None:
    """Connect to the other processes, if any, and turn on the compilation cache."""
    _quiet()
    from mvcl import training

    training.join(training.Distributed() if distributed is None else distributed)
    training.compilation_cache()
    _collect_garbage()


def _collect_garbage() -> None:
    """Turn on the garbage collector, which `mvcl.__main__` has turned off.

    It passes over what was imported, and runs after 10,000 new objects instead of 700: tracing a program makes many,
    and keeps them.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


def _needs_hard_exit(error: Exception) -> bool:
    """Whether to skip Python's normal exit: it would wait for a blocked reader or for other processes, or raise again
    for each open file on a full disk."""
    if "jax" not in sys.modules or isinstance(error, ImportError):
        return False
    import jax

    from mvcl import data, training

    stopped_together = getattr(error, "signal", None) is not None
    several = jax.distributed.is_initialized() and not stopped_together
    return several or isinstance(error, (data.StalledReader, training.UnwrittenCheckpoint, OSError))


def _exit_code(error: Exception) -> int:
    if (number := getattr(error, "signal", None)) is not None:  # training.Interrupted
        return 128 + number
    return 2 if isinstance(error, ValueError) else 1


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"{text}: free disk space, then repeat the command to resume from the newest checkpoint"
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES):
        return f"{text}: choose a writable --workdir"
    if isinstance(error, (ValueError, RuntimeError, OSError)):
        return text
    return f"{type(error).__name__}: {text} (a bug in mvcl; --debug prints the traceback)"


if __name__ == "__main__":
    sys.exit(main())
