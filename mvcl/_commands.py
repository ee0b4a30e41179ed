"""The commands that need no config: their options as a dataclass, whose call runs the command.

What takes long to import is imported when a command has checked what it can without it.
"""

import dataclasses
import gc
import shlex
from pathlib import Path
from typing import Any, Literal

from mvcl import _buckets, _configs, _progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OfRun:
    """Options of the commands that open a run."""

    run: Path
    """Folder of the run."""
    checkpoint: str = "latest"
    """`latest`, `best`, or a step."""
    network: Literal["config", "online", "momentum"] = "config"
    """Network to use, for methods with a momentum encoder or teacher; `config` uses the method's `evaluate` field."""
    config: str | None = None
    """Its config (`FILE.py` or `FILE.py:VARIANT`); needed if the run uses functions or classes from outside mvcl."""

    @property
    def as_trained(self) -> bool:
        """Whether the network is the one that training evaluates."""
        return self.checkpoint == "latest" and self.network == "config"

    def open(self, **options: Any) -> tuple[Any, Any]:
        """The run and its state."""
        folder = run_folder(self.run)
        start_jax()
        from mvcl import training

        reference = reference_of(self.config)
        return training.open_run(folder, self.checkpoint, self.network, reference=reference, **options)


class Evaluate(_OfRun):
    """Evaluate a run's encoder, the untrained encoder and the raw input; print the table."""

    def __call__(self) -> int:
        run, state = self.open()
        from mvcl import evaluation, training

        rows = training.evaluate(run, state, _buckets.path(self.run) if self.as_trained else None)
        print(f"step {int(state['step'])} of {self.run}\n\n{evaluation.evaluation_table(rows)}")
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embed(_OfRun):
    """Write the features of a split, and print their rank, uniformity and alignment.

    OUT has the arrays features, (n, d) or with --views (n, views, d), labels (n,) and class_names; OUT with the
    ending .json has the measures.
    """

    split: str = "test"
    """`train` or `test`."""
    out: Path = Path("embeddings.npz")
    """File to write."""
    views: int = 0
    """Random views of each image, drawn by the policies of training; 0: one vector of each example, as evaluated."""
    output: Literal["config", "encoder", "head", "views", "head_views"] = "config"
    """Output to write, the encoder's or the head's; `config` uses evaluation.features. Koromilas 2025 measures the
    head's."""

    def __call__(self) -> int:
        run, state = self.open(output=self.output)
        from mvcl import evaluation, training

        out = _buckets.path(self.out)
        shape, measures = training.embed(run, state, self.split, out, views=self.views)
        size = " x ".join(map(str, shape))
        print(f"{out}: features {size} of split {self.split}, step {int(state['step'])}")
        print(f"\n{evaluation.evaluation_table({run.config.evaluation.features: measures})}")
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Geometry(_OfRun):
    """Measure the embeddings of the views of a split: how they fill the sphere, and how far views are apart.

    At the encoder and the head, of each view, each pair of views and all together: rank, effective rank, LiDAR,
    uniformity, alignment, spectrum, and the cosines of positives and negatives. Written as .json and as pictures in an
    .svg file beside it; the report shows both.
    """

    split: str | None = None
    """`train` or `test`; None: the last split that the evaluation uses, usually `test`."""
    views: int | None = None
    """Random views of each image, drawn by the policies of training; None: as many as in training."""
    examples: int = 10_000
    """Most examples to embed, a fixed random sample."""
    out: Path | None = None
    """The .json file to write; None: RUN/geometry.json for the newest checkpoint, and no file for another."""

    def __call__(self) -> int:
        if self.out is not None and self.out.suffix != ".json":
            raise ValueError(f"--out must be a .json file, got {self.out}")
        run, state = self.open()
        from mvcl import evaluation, report, training

        out = None if self.out is None else _buckets.path(self.out)
        if out is None and self.as_trained:
            out = _buckets.path(self.run) / "geometry.json"
        found = training.geometry(run, state, out, split=self.split, views=self.views, examples=self.examples)
        print(f"step {found.step} of {self.run}, {found.examples:,} examples of split {found.split}\n")
        print(evaluation.evaluation_table(found.results()))
        if out is not None:
            with _progress.during("drawing the pictures"):
                picture = report.write_geometry(out, out.with_suffix(".svg"))
            print(f"\n{out}\n{picture}")
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Write a page for one run, or one that compares several."""

    runs: tuple[Path, ...]
    """Folders of the runs."""
    out: Path | None = None
    """File to write; None is RUN/report.html, or ./report.html for several runs."""

    def __call__(self) -> int:
        if not self.runs:
            raise ValueError("mvcl report needs a folder: mvcl report RUN [RUN ...]")
        runs = [run_folder(run) for run in self.runs]
        out = runs[0] / "report.html" if len(runs) == 1 else Path("report.html")
        from mvcl import report

        collect_garbage()
        with _progress.during("writing the report"):
            page = report.write_report(runs, out if self.out is None else _buckets.path(self.out))
        print(page)
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export(_OfRun):
    """Write the encoder's weights as safetensors, under torchvision's (ResNet) or timm's (ViT) names."""

    out: Path = Path("encoder.safetensors")
    """File to write."""

    def __call__(self) -> int:
        run, state = self.open()
        from mvcl import models, training

        encoder, out = training.one_encoder(run, state), _buckets.path(self.out)
        with _progress.during(f"writing {out}"):
            models.export(encoder, run.config.encoder, out)
        print(f"{out}: {models.parameter_count(encoder):,} parameters of step {int(state['step'])}")
        return 0


@dataclasses.dataclass(frozen=True)
class Configs:
    """List the configs of the project, as `mvcl train` takes them, or write a copy of one to edit.

    `mvcl configs --copy studies/NAME` copies a study.
    """

    copy: str | None = None
    """Name of a config; None: list them."""
    out: Path | None = None
    """File to write, ending in .py; None: the last part of the name, in this folder. An existing file is kept."""

    def __call__(self) -> int:
        if self.copy is not None:
            out, command = _configs.copy(self.copy, self.out)
            print(f"{out}\n\n  {shlex.join(command)}")
            return 0
        if self.out is not None:
            raise ValueError("--out is the file of a copy: mvcl configs --copy CONFIG --out FILE.py")
        for name, file in _configs.names().items():
            print(f"{name}\n  {_configs.summary(file)}")
            found = {f"{name}:{variant}": text for variant, text in _configs.variants(file).items()}
            found.pop(f"{name}:get_config", None)  # the default, listed by the name alone
            width = max(map(len, found), default=0)
            for variant, text in found.items():
                print(f"    {variant:<{width}}  {text}")
        return 0


@dataclasses.dataclass(frozen=True)
class Prepare:
    """Write a data set as ArrayRecord files."""

    name: str
    """A tfds name such as cifar10 (these need the `tensorflow` extra); or domainnet, eeg, sentiment or
    transfer, which have further options: `mvcl data prepare eeg --help`."""
    directory: str | None = None
    """Root of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetune:
    """The options of `mvcl finetune` besides the fields of its config."""

    workdir: Path | None = None
    """Folder of results.json and of one run per seed. Repeating the command resumes the runs. None: RUN/finetune
    for the run's own data, RUN/finetune_DATA for other data, such as RUN/finetune_transfer_food101."""
    seeds: int = 3
    """Number of runs; their mean and standard deviation are reported."""


def run_folder(run: str | Path) -> Path:
    """The folder, maybe in a bucket; raises `ValueError` if it is not that of a run."""
    folder = _buckets.path(run)
    if not (folder / "config.json").is_file():
        raise ValueError(f"{run} is not a run folder: it has no config.json")
    return folder


def reference_of(config: str | None) -> Any:
    """The config given by --config, which holds functions and classes from outside mvcl."""
    from mvcl import training

    return None if config is None else training.load(config)


def start_jax(distributed: Any = None) -> None:
    """Connect to the other processes, if any, and turn on the compilation cache."""
    import absl.logging

    from mvcl import training

    absl.logging.set_verbosity(absl.logging.FATAL)  # errors still raise exceptions
    training.join(training.Distributed() if distributed is None else distributed)
    training.compilation_cache()
    collect_garbage()


def collect_garbage() -> None:
    """Turn on the garbage collector, which `mvcl.__main__` has turned off.

    It passes over what was imported, and runs after 10,000 new objects instead of 700: tracing a program makes many,
    and keeps them.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()
