"""The commands of a run's encoder: features of its data and of new rows, neighbours, geometry, weights."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mvcl import _buckets, _configs, _progress, data, evaluation, models, training
from mvcl._commands import first, start


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfRun:
    """Options of the commands that open a run."""

    run: Path
    """Folder of the run."""
    checkpoint: str = "latest"
    """`latest`, `best`, or a step."""
    network: Literal["config", "online", "momentum"] = "config"
    """Network to use, for methods with a momentum encoder or teacher; `config` uses the method's `evaluate` field."""
    config: str | None = None
    """Its config (`FILE.py` or `FILE.py:VARIANT`); needed if the run uses functions or classes from outside mvcl."""

    def open(self, path: str = "", with_data: bool = True, **options: Any) -> tuple[Any, Any, Path | None]:
        """The run, its state, and its folder if the network is the one that training evaluates; its splits are those of
        new rows, if `path` is theirs."""
        folder = _configs.run_folder(self.run)
        start()
        if self.config is not None:
            training.load(self.config)  # the run's config may name its code
        options["with_data"] = with_data and not path
        run, state = training.open_run(folder, self.checkpoint, self.network, **options)
        if path:
            run = dataclasses.replace(run, splits=_new(run, path))
        as_trained = self.checkpoint == "latest" and self.network == "config"
        return run, state, folder if as_trained else None


def _new(run: Any, path: str) -> Any:
    names = tuple(run.kept["class_names"])
    return data.new_rows(run.config.data, path, run.outline.spec, run.kept["scaling"], names)


Opened = Annotated[OfRun, tyro.conf.arg(name="")]


_Path = Annotated[str, tyro.conf.arg(name="data.path")]


def embed(
    of: Opened,
    *,
    path: _Path = "",
    split: str | None = None,
    out: Path = Path("embeddings.npz"),
    views: int = 0,
    output: Literal["config", "encoder", "head", "views", "head_views"] = "config",
) -> None:
    """Write the features of a split, or of new rows, and print their rank, uniformity and alignment.

    OUT has the arrays features, (n, d) or with --views (n, views, d), labels (n,), class_names, ids (or files), present
    (n, k) where views are missing, and the nearest of the run's clusters; OUT with the ending .json has the measures.

    Args:
      path: New rows: a file or folder as the run's data, labelled or not, which get the run's scaling. An image or a
        folder of them for a run on images.
      split: `train` or `test`; None: `test`, or all new rows.
      out: File to write.
      views: Random views of each image, drawn by the policies of training; 0: one vector of each example, as evaluated.
      output: Output to write, the encoder's or the head's; `config` uses evaluation.features. Koromilas 2025 measures
        the head's.
    """
    run, state, folder = of.open(path, output=output)
    place, centres = _buckets.path(out), None
    part = split or ("all" if "all" in run.splits else "test")
    if folder is not None and output == "config" and not views and (folder / "centres.npz").is_file():
        from mvcl import _files

        centres = _files.read_npz(folder / "centres.npz")["centres"]
    shape, measures = training.embed(run, state, part, place, views=views, centres=centres)
    size = " x ".join(map(str, shape))
    print(f"{place}: features {size} of split {part}, step {int(state['step'])}")
    print(f"\n{evaluation.evaluation_table({run.config.evaluation.features: measures})}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Asked(OfRun):
    queries: tuple[str, ...]
    """Files or folders of new rows, as --data.path of `mvcl embed`; or ids or files of the split."""


def neighbours(
    of: Annotated[_Asked, tyro.conf.arg(name="")],
    *,
    path: _Path = "",
    split: str | None = None,
    count: int = 5,
) -> None:
    """Print the examples whose features are nearest to those of each query, by cosine.

    Args:
      path: Search these rows; empty: the run's data.
      split: The split to search; None: `train`, or all rows of --data.path.
      count: Neighbours of each query.
    """
    import numpy as np

    run, state, _ = of.open(path)
    searched = run.splits[split or ("all" if "all" in run.splits else "train")]
    encoder, names = training.Encoder(run, state), searched.named
    found = encoder.encode(searched)
    for query in of.queries:
        own = [names.index(query)] if query in names else []
        new = None if own else next(iter(_new(run, query).values()))
        asked, titles = (found[own], [query]) if new is None else (encoder.encode(new), new.named)
        cosines = asked @ found.T / np.outer(*(np.linalg.norm(z, axis=1) + 1e-30 for z in (asked, found)))
        cosines[:, own] = -np.inf
        for title, row in zip(titles, cosines):
            nearest = np.argsort(-row, kind="stable")[: min(count, len(row) - len(own))]
            print("\n".join([title, *(f"  {row[i]:.4f}  {names[i]}" for i in nearest)]))


def geometry(
    of: Opened,
    *,
    split: str | None = None,
    views: int | None = None,
    examples: int = 10_000,
    out: Path | None = None,
) -> None:
    """Measure the embeddings of the views of a split: how they fill the sphere, and how far views are apart.

    At the encoder and the head, of each view, each pair of views and all together: rank, effective rank, LiDAR,
    uniformity, alignment, spectrum, and the cosines of positives and negatives. Written as .json, which the report of
    the run shows and draws.

    Args:
      split: `train` or `test`; None: the last split that the evaluation uses, usually `test`.
      views: Random views of each image, drawn by the policies of training; None: as many as in training.
      examples: Most examples to embed, a fixed random sample.
      out: The .json file to write; None: RUN/geometry.json for the newest checkpoint, and no file for another.
    """
    if out is not None and out.suffix != ".json":
        raise ValueError(f"--out must be a .json file, got {out}")
    run, state, folder = of.open()
    place = folder and folder / "geometry.json" if out is None else _buckets.path(out)
    found = training.geometry(run, state, place, split=split, views=views, examples=examples)
    print(f"step {found.step} of {of.run}, {found.examples:,} examples of split {found.split}\n")
    print(evaluation.evaluation_table(found.results()))
    if place is not None:
        print(f"\n{place}")


def decompose(
    of: Opened,
    *,
    raw: bool = True,
    probe: Literal["best", "linear", "network"] = "best",
    examples: int = 20_000,
    draws: int = 200,
    out: Path | None = None,
) -> None:
    """Estimate how much of the labels or scores each view tells alone, several in common, and only all together.

    Probes on the features of subsets of views, in bits with intervals, and the parts: unique, shared, synergy, with
    bounds. Written as .json and .csv; the report of the run shows and draws them.

    Args:
      raw: Probe the raw views too, where an example has at most 4,096 numbers.
      probe: A regularised linear probe, a network of two layers, or the better of both on held-out training rows.
      examples: Most examples of a split, a fixed random sample.
      draws: Draws of the bootstrap for the intervals.
      out: The .json file to write; None: RUN/decomposition.json for the newest checkpoint, and no file for another.
    """
    if out is not None and out.suffix != ".json":
        raise ValueError(f"--out must be a .json file, got {out}")
    run, state, folder = of.open()
    place = folder and folder / "decomposition.json" if out is None else _buckets.path(out)
    found = training.decompose(run, state, place, raw=raw, probe=probe, examples=examples, draws=draws)
    print(f"step {int(state['step'])} of {of.run}")
    for row, each in found.items():
        print(f"\n{row}\n\n{each.table()}\n")
    if place is not None:
        print(place)


def export(of: Opened, *, out: Path = Path("encoder.safetensors")) -> None:
    """Write the encoder's weights as safetensors, under torchvision's (ResNet) or timm's (ViT) names.

    Args:
      out: File to write.
    """
    run, state, _ = of.open(with_data=False)
    encoder, place = training.one_encoder(run, state), _buckets.path(out)
    with _progress.during(f"writing {place}"):
        models.export(encoder, run.config.encoder, place)
    print(f"{place}: {models.parameter_count(encoder):,} parameters of step {int(state['step'])}")


def evaluate(arguments: list[str]) -> None:
    """Evaluate a run's encoder, or one from a file of weights, the untrained encoder and the raw input.

    usage: mvcl evaluate RUN [--checkpoint STEP] [--network NAME] [--config FILE]
           mvcl evaluate CONFIG --weights FILE [--prefix NAME] [--workdir DIR] [FIELD:CHOICE ...] [--FIELD VALUE ...]

    FILE, of safetensors or PyTorch, has the names of torchvision, timm or a paper's code. Both forms have --help.
    """
    if any(argument.partition("=")[0] == "--weights" for argument in arguments):
        name = first(arguments, "mvcl evaluate CONFIG --weights FILE; `mvcl configs` lists configs")
        return training.with_config(_evaluate_weights, training.load(name), f"evaluate {name}", arguments[1:])
    of = tyro.cli(OfRun, args=arguments, prog="mvcl evaluate", config=(tyro.conf.PositionalRequiredArgs,))
    run, state, folder = of.open()
    rows = training.evaluate(run, state, folder)
    print(f"step {int(state['step'])} of {of.run}\n\n{evaluation.evaluation_table(rows)}")


def _evaluate_weights(
    config: Annotated["training.Config", tyro.conf.arg(name="")],
    *,
    weights: Path,
    prefix: str | None = None,
    workdir: Path | None = None,
) -> None:
    """`evaluate` of a file.

    Args:
      weights: File of the encoder's weights, and of the head's if the evaluation is of the head.
      prefix: What stands before the encoder's names in the file, or its end (base_encoder); needed if several fit.
      workdir: Folder to write evaluation.json and embeddings.npz to; None: the table is printed only.
    """
    start()
    run, state = training.open_weights(config, weights, prefix)
    if folder := workdir and _buckets.path(workdir):
        if (folder / "config.json").is_file():
            raise ValueError(f"--workdir {folder} is the folder of a run, which has an evaluation of its own")
        folder.mkdir(parents=True, exist_ok=True)
    rows = training.evaluate(run, state, folder)
    table = {weights.name if row == "trained encoder" else row: of for row, of in rows.items()}
    print(f"weights {run.weights}\n\n{evaluation.evaluation_table(table)}")
