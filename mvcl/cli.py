"""The `mvcl` command: parse, call, print."""

import ast
import dataclasses
import difflib
import errno
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from mvcl import _extras

with _extras.needed("train", by="the mvcl command"):
    import tyro

_ROOT = Path(__file__).resolve().parents[1]
_OVERVIEW = """usage: mvcl COMMAND ...

Multi-view contrastive representation learning.

  mvcl train CONFIG [--workdir DIR] [FIELD:CHOICE ...] [--FIELD VALUE ...]
                             train a config, or continue it; then evaluate and report
  mvcl train CONFIG --help   every field of a config, explained
  mvcl train CONFIG --dry-run
                             what a step of it costs
  mvcl train CONFIG --profile 20
                             trace 20 steps for XProf and Perfetto
  mvcl evaluate RUN          the evaluation table of a trained run
  mvcl finetune RUN [--data NAME]
                             fine-tune the whole encoder, on its data or a transfer set
  mvcl embed RUN --split test --out z.npz
                             features of a split
  mvcl report RUN ...        report.html of a run, or of several side by side
  mvcl export RUN --out encoder.safetensors
                             the encoder's weights under torchvision's or timm's names
  mvcl data prepare NAME     write a data set as ArrayRecord, once
  mvcl configs               the configs that come with the project

Every command takes --help, and --debug for a full traceback of an error.
"""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Measure a run's encoder beside the untrained one and raw input."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    checkpoint: str = "latest"
    """`latest`, `best`, or a step."""
    network: Literal["config", "online", "momentum"] = "config"
    """Of a method with a momentum encoder or teacher, the network that is taken; `config` is what its config says."""
    config: str | None = None
    """The config file (`FILE.py` or `FILE.py:VARIANT`) of a run that uses functions or classes of its own."""


@dataclasses.dataclass(frozen=True)
class Embed:
    """Write the features of a split: arrays features (n, d), labels (n,) and class_names."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    split: str = "test"
    """`train` or `test`."""
    out: Path = Path("embeddings.npz")
    """File to write."""
    checkpoint: str = "latest"
    """`latest`, `best`, or a step."""
    network: Literal["config", "online", "momentum"] = "config"
    """Of a method with a momentum encoder or teacher, the network that is taken; `config` is what its config says."""
    config: str | None = None
    """The config file (`FILE.py` or `FILE.py:VARIANT`) of a run that uses functions or classes of its own."""


@dataclasses.dataclass(frozen=True)
class Report:
    """Write report.html: of one run into its folder, of several side by side."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of the runs."""
    out: Path | None = None
    """File to write; None is RUN/report.html, or ./report.html for several runs."""


@dataclasses.dataclass(frozen=True)
class Export:
    """Write the encoder's weights as safetensors, under torchvision's (ResNet) or timm's (ViT) names."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    out: Path = Path("encoder.safetensors")
    """File to write."""
    checkpoint: str = "latest"
    """`latest`, `best`, or a step."""
    network: Literal["config", "online", "momentum"] = "config"
    """Of a method with a momentum encoder or teacher, the network that is taken; `config` is what its config says."""
    config: str | None = None
    """The config file (`FILE.py` or `FILE.py:VARIANT`) of a run that uses functions or classes of its own."""


@dataclasses.dataclass(frozen=True)
class Prepare:
    """Prepare a data set once, as ArrayRecord."""

    name: tyro.conf.Positional[str]
    """`digits`; a tfds name such as cifar10 (these need the `tensorflow` extra); or domainnet, eeg, sentiment or
    transfer, which take options of their own: `mvcl data prepare eeg --help`."""
    directory: str | None = None
    """Root of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""


@dataclasses.dataclass(frozen=True)
class Configs:
    """List the configs that come with the project."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 2 for input that cannot work, and 1 for a fault at run time."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    try:
        return _dispatch(arguments)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("mvcl: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        print(f"mvcl: {_one_line(error)}", file=sys.stderr, flush=True)
        if argv is None and _leaves_threads(error):  # a caller from Python stays
            sys.stdout.flush()
            os._exit(_exit_code(error))
        return _exit_code(error)


def _dispatch(arguments: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "evaluate": lambda a: _evaluate(_parse(Evaluate, "evaluate", a)),
        "finetune": _finetune,
        "embed": lambda a: _embed(_parse(Embed, "embed", a)),
        "report": lambda a: _report(_parse(Report, "report", a)),
        "export": lambda a: _export(_parse(Export, "export", a)),
        "data": _data,
        "configs": lambda a: _configs(_parse(Configs, "configs", a)),
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
    return tyro.cli(kind, args=arguments, prog=f"mvcl {command}")


def _train(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        if set(arguments) & {"-h", "--help"}:
            print(
                "usage: mvcl train CONFIG [--workdir DIR] [--dry-run] [--profile N] [FIELD:CHOICE ...] "
                "[--FIELD VALUE ...]\n"
            )
            print(
                "CONFIG is a Python file (see `mvcl configs`), a saved config.json, or the folder of a run."
            )
            print("`mvcl train CONFIG --help` explains every field of that config.")
            return 0
        raise ValueError(
            "mvcl train needs a config first: mvcl train CONFIG --workdir DIR; `mvcl configs` lists them"
        )
    _quiet()
    from mvcl import studies, training

    path, variant = training.split(_find_config(arguments[0]))
    source = path if path.suffix != ".py" else f"{path}:{variant}"
    loaded = training.load_any(source, (training.Config, studies.Gaussian))
    if isinstance(loaded, studies.Gaussian):
        return _study(loaded, _default_name(path, variant), arguments)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Train:
        workdir: Path = Path("runs") / _default_name(path, variant)
        """Folder of the run: config, checkpoints, logs, report. The same command again continues it."""
        dry_run: bool = False
        """Build the true-size step, print what it costs, and stop."""
        profile: int = 0
        """Steps to trace into the run's folder `profile`, for XProf and Perfetto."""
        distributed: training.Distributed = dataclasses.field(default_factory=training.Distributed)
        """Where the other processes are, if the environment does not say."""

    parsed = _with_config(Train, loaded, f"train {arguments[0]}", arguments[1:], "Train this config.")
    _start_jax(parsed.distributed)
    if parsed.dry_run:
        print(training.dry_run(training.check(parsed.config)))
        return 0
    rows = training.train(parsed.config, parsed.workdir, profile=parsed.profile)
    import jax

    from mvcl import evaluation, report

    if jax.process_index() == 0:
        page = report.write_report([parsed.workdir], parsed.workdir / "report.html")
        print(f"\n{evaluation.evaluation_table(rows)}\n\nreport: {page}")
    return 0


def _study(study: Any, name: str, arguments: list[str]) -> int:
    from mvcl import studies

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Study:
        workdir: Path = Path("runs") / name
        """Folder of the page, the figure, the numbers and the runs. The same command again continues them."""
        dry_run: bool = False
        """Print what the study costs, and stop."""
        config: Annotated[studies.Gaussian, tyro.conf.arg(name="")] = study

    parsed = tyro.cli(Study, args=arguments[1:], prog=f"mvcl train {arguments[0]}", description=study.__doc__)
    _start_jax()
    if parsed.dry_run:
        print(studies.dry_run(parsed.config))
        return 0
    page = studies.run(parsed.config, parsed.workdir)
    print(f"\n{page.read_text()}\npage: {page}")
    return 0


def _evaluate(options: Evaluate) -> int:
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
    """Parse the options of a command and, beside them as `config`, the fields of a config."""
    from mvcl import training

    config, rest = training.choose_all(config, arguments)
    field = ("config", Annotated[training.Config, tyro.conf.arg(name="")], dataclasses.field(default=config))
    listing = "; ".join(f"{name}: {', '.join(table)}" for name, table in training.CHOICES.items())
    with training.registry:
        return tyro.cli(
            dataclasses.make_dataclass("Options", [field], bases=(kind,), frozen=True, kw_only=True),
            args=rest,
            prog=f"mvcl {command}",
            description=f"{summary} Chosen by name with FIELD:CHOICE, each with its own options: {listing}.",
            config=(tyro.conf.AvoidSubcommands,),
        )


def _finetune(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        if set(arguments) & {"-h", "--help"}:
            print(
                "usage: mvcl finetune RUN [--seeds N] [data:transfer --data.name NAME] [--FIELD VALUE ...]\n"
            )
            print("Train the encoder of a run and a new linear layer on labelled images, and measure them.")
            print("`mvcl finetune RUN --help` explains every field.")
            return 0
        raise ValueError("mvcl finetune needs the folder of a run first: mvcl finetune RUN")
    _quiet()
    from mvcl import evaluation, training

    run = Path(arguments[0])

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Finetune:
        workdir: Path = run / "finetune"
        """Folder of the runs, one a seed, and of results.json. The same command again continues them."""
        seeds: int = 3
        """Runs, whose mean and deviation are reported."""

    base = training.finetune_config(run)
    parsed = _with_config(
        Finetune, base, f"finetune {run}", arguments[1:], "Fine-tune the encoder of a run on labelled images."
    )
    _start_jax()
    results = training.finetune(parsed.config, parsed.workdir, parsed.seeds)
    out = parsed.workdir / "results.json"
    out.write_text(json.dumps([dataclasses.asdict(result) for result in results], indent=1) + "\n")
    print(f"\n{evaluation.evaluation_table({'fine-tuned': results})}\n\nresults: {out}")
    return 0


def _embed(options: Embed) -> int:
    _start_jax()
    from mvcl import training

    run, state = training.open_run(
        options.run, options.checkpoint, options.network, reference=_reference(options.config)
    )
    shape = training.embed(run, state, options.split, options.out)
    print(
        f"{options.out}: features {shape[0]} x {shape[1]} of split {options.split}, step {int(state['step'])}"
    )
    return 0


def _report(options: Report) -> int:
    from mvcl import report

    if not options.runs:
        raise ValueError("mvcl report needs the folder of a run: mvcl report RUN [RUN ...]")
    for run in options.runs:
        if not (run / "config.json").is_file():
            raise ValueError(f"{run} is not the folder of a run: it has no config.json")
    single = options.runs[0] / "report.html" if len(options.runs) == 1 else Path("report.html")
    print(report.write_report(list(options.runs), options.out or single))
    return 0


def _export(options: Export) -> int:
    _start_jax()
    from mvcl import models, training

    run, state = training.open_run(
        options.run, options.checkpoint, options.network, reference=_reference(options.config)
    )
    encoder = training.one_encoder(run, state)
    models.export(encoder, run.config.encoder, options.out)
    print(f"{options.out}: {models.parameter_count(encoder):,} parameters of step {int(state['step'])}")
    return 0


def _data(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            "usage: mvcl data prepare NAME [--OPTION VALUE ...]\n\nPrepare a data set once, as ArrayRecord."
        )
        print(
            "NAME is a tfds data set, or domainnet, eeg, sentiment or transfer; `mvcl data prepare eeg --help`."
        )
        return 0
    if arguments[0] != "prepare":
        raise ValueError(f"unknown command data {arguments[0]!r}; the one there is: mvcl data prepare NAME")
    from mvcl import data

    if arguments[1:] and arguments[1] in data.PREPARERS:
        print(_parse(data.PREPARERS[arguments[1]], f"data prepare {arguments[1]}", arguments[2:]).run())
        return 0
    options = _parse(Prepare, "data prepare", arguments[1:])
    print(data.prepare(options.name, options.directory))
    return 0


def _configs(_: Configs) -> int:
    files = sorted((_ROOT / "configs").rglob("*.py"))
    if not files:
        raise ValueError(f"there are no configs in {_ROOT / 'configs'}; run from a checkout of the project")
    for file in files:
        print(f"{file.relative_to(_ROOT)}\n  {_first_line(ast.parse(file.read_text()))}")
        for variant, text in variants(file).items():
            if variant != "get_config":  # what the file gives without a variant
                print(f"    :{variant:<18} {text}")
    return 0


def variants(file: Path) -> dict[str, str]:
    """The functions of a config file that take nothing, and the first lines of their docstrings; imports nothing."""
    functions = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: _first_line(node)
        for node in functions
        if not node.name.startswith("_") and not ast.unparse(node.args)
    }


def _first_line(node: ast.Module | ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0]


def _reference(config: str | None) -> Any:
    """The config that the user names for its own functions and classes."""
    from mvcl import training

    return None if config is None else training.load(_find_config(config))


def _find_config(name: str) -> str:
    """The config as given, or inside the checkout."""
    file = Path(name.split(":")[0])
    return str(_ROOT / name) if not file.exists() and (_ROOT / file).exists() else name


def _default_name(config: Path, variant: str = "get_config") -> str:
    name = config.parent.name if config.name == "config.json" else config.stem
    return name if variant == "get_config" else f"{name}-{variant}"


def _quiet() -> None:
    """Before jax is loaded: what its libraries have to say comes as an exception, too."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import absl.logging

    absl.logging.set_verbosity(absl.logging.FATAL)


def _start_jax(distributed: Any = None) -> None:
    """Join the other processes, if there are any, and keep compiled programs."""
    _quiet()
    from mvcl import studies, training  # noqa: F401  the runs of studies name their classes

    training.join(training.Distributed() if distributed is None else distributed)
    training.compilation_cache()


def _leaves_threads(error: Exception) -> bool:
    """Whether Python's own way out would wait for a hung reader or for processes that wait for this one, or would
    have each open file fail once more on a full disk."""
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
        return f"{text}: free some space, then the same command continues from the newest checkpoint"
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES):
        return f"{text}: choose a --workdir that can be written"
    if isinstance(error, (ValueError, RuntimeError, OSError)):
        return text
    return f"{type(error).__name__}: {text} (a fault of mvcl; --debug shows where)"


if __name__ == "__main__":
    sys.exit(main())
