"""The commands: functions of their options, or of arguments whose options depend on the first.

Their packages import jax when one of their names is first used: a wrong path is found before.
"""

import dataclasses
import functools
import inspect
import itertools
import json
import operator
import os
import shlex
import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mvcl import _buckets, _configs, _progress, evaluation, studies, training


def start() -> None:
    """Connect to the other processes, if any, and turn on the compilation cache."""
    import absl.logging

    absl.logging.set_verbosity(absl.logging.FATAL)  # errors still raise exceptions
    training.join()
    training.compilation_cache()


def first(arguments: list[str], usage: str) -> str:
    """The first argument, on which the options of a command depend."""
    if not arguments or arguments[0].startswith("-"):
        raise ValueError(f"mvcl {usage.split()[1]} needs a {usage.split()[2]} first: {usage}")
    return arguments[0]


def train(arguments: list[str]) -> None:
    """Train a config or resume its run; then evaluate and report.

    usage: mvcl train CONFIG [--workdir DIR] [--dry-run] [--profile N] [FIELD:CHOICE ...] [--FIELD VALUE ...]

    CONFIG is a config of the project (`mvcl configs` lists them), a file FILE.py or FILE.py:VARIANT, a saved
    config.json, or the folder of a run. `mvcl train CONFIG --help` describes every field of that config,
    `mvcl train CONFIG --dry-run` estimates FLOPs and memory of a step; with `--devices N` the memory on so many, by
    `--train.remat`.
    """
    path, variant = _configs.find(first(arguments, "mvcl train CONFIG (`mvcl configs` lists them)"))
    config = training.load(path if path.suffix != ".py" else f"{path}:{variant}")
    name = path.parent.name if path.name == "config.json" else path.stem
    name = name if variant == "get_config" else f"{name}-{variant}"
    command = functools.partial(_train, workdir=Path("runs") / name)
    training.with_config(command, config, f"train {arguments[0]}", arguments[1:], "Train this config.")


def _train(
    config: Annotated["training.Config", tyro.conf.arg(name="")],
    *,
    workdir: Path,
    dry_run: bool = False,
    devices: int | None = None,
    profile: int = 0,
    profiler_port: int | None = None,
    seeds: int = 1,
) -> None:
    """`train` of a config.

    Args:
      workdir: Folder of the run: config, checkpoints, logs, report. Repeating the command resumes the run.
      dry_run: Compile the step at full size, print its FLOPs and memory, and exit.
      devices: With dry_run: print the memory of each of so many devices, which need not be there; nothing is compiled.
      profile: Number of steps to trace into WORKDIR/profile, for XProf and Perfetto.
      profiler_port: Port of the first process through which TensorBoard and XProf capture traces while the run goes on.
      seeds: Number of runs. More than one: WORKDIR/seed0 and so on, from train.seed, and WORKDIR/results.json with the
        mean and standard deviation of each result.
    """
    start()
    if dry_run:
        return print(training.dry_run(config) if devices is None else training.memory_table(config, devices))
    if devices is not None:
        raise ValueError(f"--devices is for --dry-run; a run takes --mesh.data {devices}")
    if profile and seeds > 1:
        raise ValueError(f"--profile traces one run, got --seeds {seeds}; use --seeds 1")
    import jax

    if profiler_port is not None and jax.process_index() == 0:
        jax.profiler.start_server(profiler_port)
    folder, first = _buckets.path(workdir), config.train.seed
    runs = [folder / f"seed{seed}" for seed in range(first, first + seeds)] if seeds > 1 else [folder]

    def page() -> Path:
        from mvcl import report

        begun = [run for run in runs if (run / "config.json").is_file()]
        return report.write_report(begun, folder / "report.html")

    if seeds > 1:
        rows = training.train_seeds(config, folder, seeds, page=page)
    else:
        rows = training.train(config, folder, profile=profile, page=page)
    if jax.process_index() == 0:
        if seeds > 1:
            from mvcl import _files

            text = json.dumps(rows, indent=1, default=dataclasses.asdict)
            _files.write_whole(folder / "results.json", text + "\n")
        with _progress.during("writing the report"):
            written = page()
        print(f"\n{evaluation.evaluation_table(rows)}\n\nreport: {written}")


def finetune(arguments: list[str]) -> None:
    """Fine-tune the whole encoder of a run with a new linear layer on labelled images, and evaluate them.

    usage: mvcl finetune RUN [--config FILE] [--seeds N] [data:transfer --data.name NAME] [--FIELD VALUE ...]

    --config is the config file of a run that uses functions or classes of its own.
    `mvcl finetune RUN --help` describes every field.
    """
    run, rest = first(arguments, "mvcl finetune RUN"), arguments[1:]
    folder = _configs.run_folder(run)
    if "--config" in rest[:-1]:  # read first: the defaults of all other options come from the run
        place = rest.index("--config")
        training.load(rest.pop(place + 1))
        del rest[place]
    base = training.finetune_config(folder)

    def finetuned(
        config: Annotated[training.Config, tyro.conf.arg(name="")],
        *,
        workdir: Path | None = None,
        seeds: int = 3,
    ) -> None:
        """`finetune` of a config.

        Args:
          workdir: Folder of the runs, as that of `mvcl train`. Repeating the command resumes them. None: RUN/finetune
            for the run's own data, RUN/finetune_DATA for other data (RUN/finetune_transfer_food101).
          seeds: Number of runs; of more than one results.json has mean and standard deviation.
        """
        from mvcl import data

        of = type(config.data)
        kind = next((name for name, make in data.SOURCES.items() if type(make()) is of), of.__name__.lower())
        parts = [] if config.data == base.data else [kind, getattr(config.data, "name", "")]
        name = "_".join(filter(None, ["finetune", *parts])).replace("/", "_")
        _train(config, workdir=workdir or folder / name, seeds=seeds)

    what = "Fine-tune the encoder of a run on labelled images."
    training.with_config(finetuned, base, f"finetune {run}", rest, what)


def study(arguments: list[str]) -> int:
    """Run a study, a table or figure of a paper, and write its page.

    usage: mvcl study NAME --scale small [--seeds N] [--only FACTOR=LEVEL,...], or mvcl study --list

    `mvcl study NAME --help` describes its options, `mvcl study --list` the studies with their costs at each scale.
    `mvcl configs --copy studies/NAME` writes a copy to edit, which `mvcl study NAME.py` runs.
    """
    if arguments[:1] in ([], ["--list"]):
        for file in map(studies.find, arguments[1:]) if arguments[1:] else studies.study_files():
            print(f"{file.stem}\n  {_configs.summary(file)}")
            for scale, cost in studies.costs(file).items():
                print(f"    {scale:6} {cost}")
        return 0
    file = studies.find(arguments[0])
    functions = studies.scales(file)
    asked = [v for name, v in itertools.pairwise("=".join(arguments).split("=")) if name == "--scale"]
    if not asked and len(functions) > 1 and not {"-h", "--help"} & set(arguments):
        raise ValueError(f"{file.stem} has several scales; give --scale {' or '.join(functions)}")
    scale = asked[-1] if asked else "small" if "small" in functions else next(iter(functions))
    if scale not in functions:
        raise ValueError(f"--scale of {file.stem} must be one of {', '.join(functions)}, got {scale!r}")

    @functools.wraps(functions[scale])
    def absolute(**given: Any) -> studies.Study:  # the same data by another path are no other cells
        return functions[scale](**{k: v.resolve() if isinstance(v, Path) else v for k, v in given.items()})

    made = Annotated[studies.Study, tyro.conf.arg(name="", constructor=absolute)]
    fields: list[Any] = [("scale", Literal[tuple(functions)], scale), ("study", made, dataclasses.field())]
    bases, name = (studies.Options,), f"mvcl study {arguments[0]}"
    kind: Any = dataclasses.make_dataclass("Options", fields, bases=bases, frozen=True, kw_only=True)
    of_scale = (inspect.getdoc(functions[scale]) or "").partition("\n\nArgs:")[0]
    described = f"{_configs.summary(file)}\n\n--scale {scale}: {of_scale}"
    options = tyro.cli(kind, args=arguments[1:], prog=name, description=described)
    for name in ("workdir", "write"):
        if ":/" in str(getattr(options, name)):  # a bucket
            raise ValueError(f"--{name} of a study must be a folder on a disk, got {getattr(options, name)}")
    if options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    opened = studies.Opened(file.stem, scale, options.study, tuple(arguments))
    folder = options.workdir / f"{opened.name}_{scale}"
    if options.jobs > 1 and options.slurm is None:  # else the first process takes most of a GPU's memory
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    start()
    if options.dry_run:
        text, absent = studies.overview(opened, folder, options)
        print(text)
        return int(absent > 0)
    if options.worker:
        return int(studies.run(opened.study, folder, again=options.again, only=options.only) > 0)
    if options.slurm is not None and shutil.which("sbatch") is None:
        raise ValueError("--slurm needs sbatch, got a PATH without it; submit where SLURM is, or use --jobs")
    page, unfinished = studies.run_study(opened, folder, options)
    print(f"\n{page.read_text()}\npage: {page}")
    return int(unfinished > 0)


def compare(arguments: list[str]) -> int:
    """Train a config with several objectives and compare them: table, paired differences and figure.

    usage: mvcl compare CONFIG --objectives NAME [NAME ...] [--seeds N] [--set FIELD=VALUE,VALUE ...] [--workdir DIR]
                        [FIELD:CHOICE ...] [--FIELD VALUE ...]

    NAME is an objective of the project or FILE.py:FUNCTION. The other options are those of `mvcl train CONFIG`.
    Repeating the command keeps finished runs; the page, with its files, is in DIR (runs/compare/CONFIG).
    """
    name = first(arguments, "mvcl compare CONFIG --objectives NAME NAME")

    def compared(
        config: Annotated[training.Config, tyro.conf.arg(name="")],
        *,
        objectives: tuple[str, ...],
        levels: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = (),
        seeds: int = 3,
        workdir: Path | None = None,
    ) -> int:
        """`compare` of a config.

        Args:
          objectives: Objectives of the project, or FILE.py:FUNCTION.
          levels: FIELD=VALUE,VALUE: every combination is trained.
          seeds: Runs of each objective.
          workdir: Folder of the page; None: runs/compare/CONFIG.
        """
        start()
        named = {text: _objective(config, text) for text in objectives}
        values: dict[str, Any] = {}
        for text in levels:
            option, _, given = text.partition("=")
            options = [[f"--{option}", value] for value in given.split(",")]
            read = [training.with_config(_config, config, "compare --set", of) for of in options]
            field = option.replace("-", "_")
            values[field] = [operator.attrgetter(field)(of) for of in read]
        shown = shlex.join(["mvcl", "compare", *arguments])
        folder = workdir or Path("runs/compare") / Path(name.replace(":", "-")).stem
        found = studies.compare(config, named, folder, seeds=seeds, levels=values, command=shown)
        print(f"\n{Path(found.attrs['page']).read_text()}\npage: {found.attrs['page']}")
        return int(found.attrs["failed"] > 0)

    return int(training.with_config(compared, training.load(name), f"compare {name}", arguments[1:]))


def _config(config: Annotated["training.Config", tyro.conf.arg(name="")]) -> "training.Config":
    """The config of a command line."""
    return config


def _objective(config: Any, text: str) -> Any:
    """An objective of the project by name, or FILE.py:FUNCTION."""
    file, _, name = text.rpartition(":")
    if not file.endswith(".py"):
        return training.choose(config, "objective", text).objective
    if not Path(file).is_file():
        raise ValueError(f"--objectives {text}: there is no file {file}")
    found = getattr(training.config_module(Path(file)), name, None)
    if not callable(found):
        raise ValueError(f"--objectives {text}: {file} has no function {name}")
    return found


def report(runs: tuple[Path, ...], *, out: Path | None = None) -> None:
    """Write a page for one run, or one that compares several.

    Args:
      runs: Folders of the runs.
      out: File to write; None is RUN/report.html, or ./report.html for several runs.
    """
    if not runs:
        raise ValueError("mvcl report needs a folder: mvcl report RUN [RUN ...]")
    folders = [_configs.run_folder(run) for run in runs]
    place = folders[0] / "report.html" if len(folders) == 1 else Path("report.html")
    from mvcl import report

    with _progress.during("writing the report"):
        page = report.write_report(folders, place if out is None else _buckets.path(out))
    print(page)


def data(arguments: list[str]) -> None:
    """Write a data set as ArrayRecord files.

    usage: mvcl data prepare NAME [--OPTION VALUE ...]

    NAME is a tfds data set such as cifar10 (these need the `tensorflow` extra), or eeg, sentiment or transfer, which
    have further options: `mvcl data prepare eeg --help`.
    """
    if arguments[:1] != ["prepare"]:
        raise ValueError(f"unknown command data {' '.join(arguments[:1])!r}; use mvcl data prepare NAME")
    from mvcl import data

    name, *rest = arguments[1:] or ["--help"]
    if name in data.PREPARERS:
        print(tyro.cli(data.PREPARERS[name](), args=rest, prog=f"mvcl data prepare {name}").run())
    else:
        config = (tyro.conf.PositionalRequiredArgs,)
        print(tyro.cli(data.prepare, args=[name, *rest], prog="mvcl data prepare", config=config))


def configs(*, copy: str | None = None, out: Path | None = None) -> None:
    """List the configs of the project, as `mvcl train` takes them, or write a copy of one to edit.

    `mvcl configs --copy studies/NAME` copies a study.

    Args:
      copy: Name of a config; None: list them.
      out: File to write, ending in .py; None: the last part of the name, in this folder. An existing file is kept.
    """
    if copy is not None:
        written, command = _configs.copy(copy, out)
        return print(f"{written}\n\n  {shlex.join(command)}")
    if out is not None:
        raise ValueError("--out is the file of a copy: mvcl configs --copy CONFIG --out FILE.py")
    for name, file in _configs.names().items():
        print(f"{name}\n  {_configs.summary(file)}")
        found = _configs.variants(file)
        found.pop("get_config", None)  # the default, listed by the name alone
        width = max(map(len, found), default=0)
        for variant, text in found.items():
            print(f"    {name}:{variant:<{width}}  {text}")
