"""The `mvcl` command: parse, call, print."""

import dataclasses
import errno
import inspect
import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from mvcl import _buckets, _configs, _progress, _spelling
from mvcl._commands import (
    Configs,
    Embed,
    Evaluate,
    Export,
    Finetune,
    Geometry,
    Prepare,
    Report,
    collect_garbage,
    reference_of,
    run_folder,
    start_jax,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 for success, 2 for invalid input, 1 for a failure at run time."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # of jax's libraries; errors still raise exceptions
    try:
        return _dispatch(*(a for a in arguments if a != "--debug"))
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _progress.write_line("mvcl: interrupted", sys.stderr)
        return 130
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        _progress.write_line(f"mvcl: {_one_line(error)}", sys.stderr)
        code = 2 if isinstance(error, ValueError) else 1
        if (number := getattr(error, "signal", None)) is not None:  # training.Interrupted
            code = 128 + number
        if argv is None and _needs_hard_exit(error):  # os._exit only as a command, not for a Python caller
            sys.stdout.flush()
            os._exit(code)
        return code


def _dispatch(name: str = "--help", *rest: str) -> int:
    if name in ("-h", "--help"):
        print(overview(), end="")
        return 0
    if name == "--version":
        from mvcl import __version__

        print(__version__)
        return 0
    if name not in COMMANDS:
        near = _spelling.hint(name, list(COMMANDS))
        raise ValueError(f"unknown command {name!r}; {near}Commands: {', '.join(COMMANDS)}")
    command = COMMANDS[name]
    if isinstance(command, type):
        import tyro

        return tyro.cli(command, args=rest, prog=f"mvcl {name}", config=(tyro.conf.PositionalRequiredArgs,))()
    if {"-h", "--help"} & {*rest[:1]}:
        print(inspect.getdoc(command))
        return 0
    return command(list(rest))


def overview() -> str:
    """What `mvcl --help` prints."""
    commands = [
        f"  mvcl {name:9} {(inspect.getdoc(command) or '').partition(chr(10))[0]}\n"
        for name, command in COMMANDS.items()
    ]
    return (
        "usage: mvcl COMMAND ...\n\nMulti-view contrastive representation learning.\n\n"
        f"{''.join(commands)}\n"
        "Begin with `mvcl train digits`. Every command takes --help, and --debug for a full traceback of an error.\n"
    )


def _train(arguments: list[str]) -> int:
    """Train a config or resume its run; then evaluate and report.

    usage: mvcl train CONFIG [--workdir DIR] [--dry-run] [--profile N] [FIELD:CHOICE ...] [--FIELD VALUE ...]

    CONFIG is a config of the project (`mvcl configs` lists them), a file FILE.py or FILE.py:VARIANT, a saved
    config.json, or the folder of a run. `mvcl train CONFIG --help` describes every field of that config,
    `mvcl train CONFIG --dry-run` estimates FLOPs and memory of a step.
    """
    if not arguments or arguments[0].startswith("-"):
        raise ValueError(
            "mvcl train needs a config first: mvcl train CONFIG --workdir DIR; `mvcl configs` lists them"
        )
    path, variant = _configs.find(arguments[0])  # before the imports, which take a second
    _spelling.check(arguments[1:], path, arguments[0])
    from mvcl import evaluation, report, training

    config = training.load(path if path.suffix != ".py" else f"{path}:{variant}")
    options = _train_options(path, variant)
    parsed = _with_config(options, config, f"train {arguments[0]}", arguments[1:], "Train this config.")
    start_jax(parsed.distributed)
    if parsed.dry_run:
        print(training.dry_run(parsed.config))
        return 0
    if parsed.profile and parsed.seeds > 1:
        raise ValueError(f"--profile traces one run, got --seeds {parsed.seeds}; use --seeds 1")
    if parsed.profiler_port is not None:
        training.profiler_server(parsed.profiler_port)
    workdir, first = _buckets.path(parsed.workdir), parsed.config.train.seed
    seeds = [workdir / f"seed{seed}" for seed in range(first, first + parsed.seeds)]
    runs = [workdir] if parsed.seeds == 1 else seeds

    def page() -> Path:
        begun = [run for run in runs if (run / "config.json").is_file()]
        return report.write_report(begun, workdir / "report.html")

    if parsed.seeds == 1:
        rows = training.train(parsed.config, workdir, profile=parsed.profile, page=page)
    else:
        rows = training.train_seeds(parsed.config, workdir, parsed.seeds, page=page)
    import jax

    if jax.process_index() == 0:
        if parsed.seeds > 1:
            _write_results(workdir / "results.json", rows)
        with _progress.during("writing the report"):
            written = page()
        print(f"\n{evaluation.evaluation_table(rows)}\n\nreport: {written}")
    return 0


def _train_options(config: Path, variant: str) -> type:
    """The options of `mvcl train` besides the fields of the config."""
    from mvcl import training

    name = config.parent.name if config.name == "config.json" else config.stem
    name = name if variant == "get_config" else f"{name}-{variant}"

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

    return Train


def _finetune(arguments: list[str]) -> int:
    """Fine-tune the whole encoder of a run with a new linear layer on labelled images, and evaluate them.

    usage: mvcl finetune RUN [--config FILE] [--seeds N] [data:transfer --data.name NAME] [--FIELD VALUE ...]

    --config is the config file of a run that uses functions or classes of its own.
    `mvcl finetune RUN --help` describes every field.
    """
    if not arguments or arguments[0].startswith("-"):
        raise ValueError("mvcl finetune needs a run folder as its first argument: mvcl finetune RUN")
    run, *rest = arguments
    folder = run_folder(run)
    _spelling.check(rest, folder / "config.json", run)
    from mvcl import data, evaluation, training

    reference = None
    if "--config" in rest:  # read first: the defaults of all other options come from the run
        place = rest.index("--config")
        if place + 1 == len(rest):
            raise ValueError("--config must be followed by a config file: --config FILE.py")
        reference = reference_of(rest[place + 1])
        del rest[place : place + 2]
    base = training.finetune_config(folder, reference=reference)
    summary = "Fine-tune the encoder of a run on labelled images."
    parsed = _with_config(Finetune, base, f"finetune {run}", rest, summary)
    start_jax()
    name = (
        "finetune" if parsed.config.data == base.data else f"finetune_{data.folder_name(parsed.config.data)}"
    )
    workdir = folder / name if parsed.workdir is None else _buckets.path(parsed.workdir)
    results = training.finetune(parsed.config, workdir, parsed.seeds, reference=reference)
    _write_results(workdir / "results.json", results)
    table = evaluation.evaluation_table({"fine-tuned": results})
    print(f"\n{table}\n\nresults: {workdir / 'results.json'}")
    return 0


def _with_config(kind: type, config: Any, command: str, arguments: list[str], summary: str) -> Any:
    """Parse the options of a command together with the fields of a config; the latter are the field `config`."""
    import tyro

    from mvcl import training

    config, rest = training.choose_all(config, arguments)
    field = ("config", Annotated[training.Config, tyro.conf.arg(name="")], dataclasses.field(default=config))
    listing = "; ".join(f"{name}: {', '.join(table)}" for name, table in training.CHOICES.items())
    with training.registry:
        return tyro.cli(
            dataclasses.make_dataclass("Options", [field], bases=(kind,), frozen=True, kw_only=True),
            args=rest,
            prog=f"mvcl {command}",
            description=f"{summary} Fields with named choices (FIELD:CHOICE): {listing}.",
            config=(tyro.conf.AvoidSubcommands,),
        )


def _study(arguments: list[str]) -> int:
    """Run a study, a table or figure of a paper, and write its page.

    usage: mvcl study NAME [--scale small] [--seeds N], or mvcl study --list

    `mvcl study NAME --help` describes its options, `mvcl study --list` the studies with their costs at each scale.
    `mvcl configs --copy studies/NAME` writes a copy to edit, which `mvcl study NAME.py` runs.
    """
    from mvcl import studies

    if arguments in ([], ["--list"]):
        for file in studies.study_files():
            print(f"{file.stem}\n  {_configs.summary(file)}")
            for scale, cost in studies.costs(file).items():
                print(f"    {scale:6} {cost}")
        return 0
    opened, options = _opened_study(studies.find(arguments[0]), arguments)
    folder = options.workdir or Path("runs") / "studies" / f"{opened.name}_{opened.scale}"
    start_jax()
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
    import tyro

    from mvcl import studies

    functions = studies.scales(file)
    asked = [value for name, value in itertools.pairwise(arguments) if name == "--scale"]
    scale = asked[-1] if asked else next(s for s in ("small", "smoke", "paper") if s in functions)
    if scale not in functions:
        raise ValueError(f"--scale of {file.stem} must be one of {', '.join(functions)}, got {scale!r}")
    made = Annotated[studies.Study, tyro.conf.arg(name="", constructor=functions[scale])]
    fields: list[Any] = [
        ("scale", Literal[tuple(functions)], dataclasses.field(default=scale)),
        ("study", made, dataclasses.field()),
    ]
    options: Any = tyro.cli(
        dataclasses.make_dataclass("Options", fields, bases=(studies.Options,), frozen=True, kw_only=True),
        args=arguments[1:],
        prog=f"mvcl study {arguments[0]}",
        description=_configs.summary(file),
    )
    for name in ("workdir", "write"):
        if ":/" in str(getattr(options, name)):  # a bucket
            raise ValueError(f"--{name} of a study must be a folder on a disk, got {getattr(options, name)}")
    return studies.Opened(file.stem, scale, options.study, tuple(arguments)), options


def _data(arguments: list[str]) -> int:
    """Write a data set as ArrayRecord files.

    usage: mvcl data prepare NAME [--OPTION VALUE ...]

    NAME is a tfds data set, or domainnet, eeg, sentiment or transfer; `mvcl data prepare eeg --help`.
    """
    if arguments[:1] != ["prepare"]:
        raise ValueError(f"unknown command data {' '.join(arguments[:1])!r}; use mvcl data prepare NAME")
    import tyro

    from mvcl import data

    collect_garbage()
    name, *rest = arguments[1:] or ["--help"]
    if name in data.PREPARERS:
        print(tyro.cli(data.PREPARERS[name](), args=rest, prog=f"mvcl data prepare {name}").run())
        return 0
    config = (tyro.conf.PositionalRequiredArgs,)
    options = tyro.cli(Prepare, args=[name, *rest], prog="mvcl data prepare", config=config)
    print(data.prepare(options.name, options.directory))
    return 0


COMMANDS: dict[str, type | Callable[[list[str]], int]] = {
    "train": _train,
    "evaluate": Evaluate,
    "finetune": _finetune,
    "embed": Embed,
    "geometry": Geometry,
    "report": Report,
    "study": _study,
    "export": Export,
    "data": _data,
    "configs": Configs,
}


def _write_results(file: Path, results: Any) -> None:
    """Write results as JSON."""
    from mvcl import _files

    _files.write_whole(file, json.dumps(results, indent=1, default=dataclasses.asdict) + "\n")


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
