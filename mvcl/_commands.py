"""Options of the commands that need no config."""

import dataclasses
from pathlib import Path
from typing import Literal

import tyro


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Evaluate a run's encoder, the untrained encoder and the raw input."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    checkpoint: str = "latest"
    """`latest`, `best`, or a step."""
    network: Literal["config", "online", "momentum"] = "config"
    """Network to use, for methods with a momentum encoder or teacher; `config` uses the method's `evaluate` field."""
    config: str | None = None
    """Its config (`FILE.py` or `FILE.py:VARIANT`); needed if the run uses functions or classes from outside mvcl."""


@dataclasses.dataclass(frozen=True)
class Embed:
    """Write the features of a split, and print their rank, uniformity and alignment.

    OUT has the arrays features, (n, d) or with --views (n, views, d), labels (n,) and class_names; OUT with the
    ending .json has the measures.
    """

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    split: str = "test"
    """`train` or `test`."""
    out: Path = Path("embeddings.npz")
    """File to write."""
    views: int = 0
    """Random views of each image, drawn by the policies of training; 0: one vector of each example, as evaluated."""
    output: Literal["config", "encoder", "head", "views", "head_views"] = "config"
    """Output to write, the encoder's or the head's; `config` uses evaluation.features. Koromilas 2025 measures the
    head's."""
    checkpoint: str = "latest"
    """`latest`, `best`, or a step."""
    network: Literal["config", "online", "momentum"] = "config"
    """Network to use, for methods with a momentum encoder or teacher; `config` uses the method's `evaluate` field."""
    config: str | None = None
    """Its config (`FILE.py` or `FILE.py:VARIANT`); needed if the run uses functions or classes from outside mvcl."""


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Measure the embeddings of the views of a split: how they fill the sphere, and how far views are apart.

    At the encoder and the head, of each view, each pair of views and all together: rank, effective rank, LiDAR,
    uniformity, alignment, spectrum, and the cosines of positives and negatives. Written as .json and as pictures in an
    .svg file beside it; the report shows both.
    """

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    split: str | None = None
    """`train` or `test`; None: the last split that the evaluation uses, usually `test`."""
    views: int | None = None
    """Random views of each image, drawn by the policies of training; None: as many as in training."""
    examples: int = 10_000
    """Most examples to embed, a fixed random sample."""
    out: Path | None = None
    """The .json file to write; None: RUN/geometry.json for the newest checkpoint, and no file for another."""
    checkpoint: str = "latest"
    """`latest`, `best`, or a step."""
    network: Literal["config", "online", "momentum"] = "config"
    """Network to use, for methods with a momentum encoder or teacher; `config` uses the method's `evaluate` field."""
    config: str | None = None
    """Its config (`FILE.py` or `FILE.py:VARIANT`); needed if the run uses functions or classes from outside mvcl."""


@dataclasses.dataclass(frozen=True)
class Report:
    """Write a page for one run, or one that compares several."""

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
    """Network to use, for methods with a momentum encoder or teacher; `config` uses the method's `evaluate` field."""
    config: str | None = None
    """Its config (`FILE.py` or `FILE.py:VARIANT`); needed if the run uses functions or classes from outside mvcl."""


@dataclasses.dataclass(frozen=True)
class Prepare:
    """Write a data set as ArrayRecord files."""

    name: tyro.conf.Positional[str]
    """A tfds name such as cifar10 (these need the `tensorflow` extra); or domainnet, eeg, sentiment or
    transfer, which have further options: `mvcl data prepare eeg --help`."""
    directory: str | None = None
    """Root of the prepared data sets; None is TFDS_DATA_DIR or ~/tensorflow_datasets."""


@dataclasses.dataclass(frozen=True)
class Configs:
    """List the configs of the project, as `mvcl train` takes them, or write a copy of one to edit.

    `mvcl configs --copy studies/NAME` copies a study.
    """

    copy: str | None = None
    """Name of a config; None: list them."""
    out: Path | None = None
    """File to write, ending in .py; None: the last part of the name, in this folder. An existing file is kept."""


@dataclasses.dataclass(frozen=True)
class Studies:
    """Run a study, a table or figure of a paper: mvcl study NAME; `mvcl study NAME --help` describes its options.

    `mvcl configs --copy studies/NAME` writes a copy to edit, which `mvcl study NAME.py` runs.
    """

    list: bool = True
    """List the studies of the project, with the number of runs and the cost at each scale."""
