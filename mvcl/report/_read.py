"""Read run folders, complete or not, into plain values."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from mvcl import _files

_T = TypeVar("_T")


@dataclass(frozen=True)
class Views:
    """Originals (m, H, W, C) and their views (m, k, H, W, C), both uint8, with one class name each.

    View v fills its first `sizes[v]` rows and columns, and is called `view_names[v]`.
    """

    images: np.ndarray
    views: np.ndarray
    names: list[str]
    sizes: np.ndarray
    view_names: list[str]


@dataclass(frozen=True)
class Embeddings:
    """Test features (n, d), their labels (n,) from 0 and class names."""

    features: np.ndarray
    labels: np.ndarray
    class_names: list[str]


@dataclass(frozen=True)
class Output:
    """The geometry of the embeddings of the views at one output of the network.

    Attributes:
      rows: a view or a summary of views -> measure -> value.
      views: their names.
      spectra: name of a view, or of all views -> eigenvalues of the covariance, largest first.
      alignment: (k, k) mean squared distance of two views of an instance; NaN where it is not defined.
      positives: counts of the cosines of positives, in equal bins from -1 to 1.
      negatives: counts of those of negatives.
    """

    rows: dict[str, dict[str, float]]
    views: list[str]
    spectra: dict[str, np.ndarray]
    alignment: np.ndarray
    positives: np.ndarray
    negatives: np.ndarray


@dataclass(frozen=True)
class Geometry:
    """The content of geometry.json: the geometry of each output, by name."""

    step: int
    split: str
    examples: int
    outputs: dict[str, Output]


@dataclass
class Run:
    """Content of a run folder; `missing` has the reasons for what is None or empty."""

    path: Path
    config: dict[str, Any] | None = None
    log: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row for each step; infinite where a number was not finite."""
    evaluation: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(_EVALUATION)))
    """A row for each result of the evaluation table."""
    step: int | None = None
    """Of the evaluation."""
    warnings: list[str] = field(default_factory=list)
    """What the evaluation found suspect."""
    views: Views | None = None
    embeddings: Embeddings | None = None
    refreshes: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    """Name -> step -> array: weights, cosines and losses (k, k) of the pairs of views, clusters (k, n)."""
    view_names: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Of each phase of the training."""
    geometry: Geometry | None = None
    missing: list[tuple[str, str, str]] = field(default_factory=list)
    """(missing part, reason, what to do), one for each missing or unreadable file."""

    def attempt(self, name: str, read: Callable[[Path], _T], lacks: str, remedy: str) -> _T | None:
        """What `read` makes of a file of the folder; None, and a line in `missing`, if that fails."""
        file = self.path / name
        if not file.is_file():
            # Of a run in progress, whose process holds the lock, files are written later.
            if not _files.is_locked(self.path / ".lock"):
                self.missing.append((lacks, f"{name} is missing", remedy))
            return None
        try:
            return read(file)
        except Exception as error:  # a damaged file may raise anything; the page shows it
            reason = " ".join(str(error).replace(f"{file} ", "").split())
            self.missing.append((lacks, f"{name} cannot be read ({type(error).__name__}: {reason})", remedy))
            return None


def read_run(path: Path) -> Run:
    """Read all readable files of the run folder `path`.

    Raises:
      ValueError: `path` is not a folder.
    """
    if not path.is_dir():
        raise ValueError(f"run_dirs must be folders that `mvcl train` has written, got {str(path)!r}")
    run = Run(path)
    train = "repeat mvcl train with the run's config and the same --workdir to write it"
    run.config = run.attempt("config.json", _config, "The configuration", train)
    run.log = _or(run.attempt("metrics.jsonl", _log, "The curves", train), run.log)
    evaluation = run.attempt(
        "evaluation.json", _evaluation, "The evaluation table", f"run: mvcl evaluate {path}"
    )
    run.step, run.evaluation, run.warnings = evaluation or (None, run.evaluation, [])
    if (path / "scaling.json").is_file():  # of tables, which have no images
        run.view_names = run.attempt("scaling.json", _view_names, "The names of the views", train) or []
    else:
        run.views = run.attempt("views.npz", _views, "The images of the views", train)
    embed = f"run: mvcl embed {path} --split test --out {path / 'embeddings.npz'}"
    run.embeddings = run.attempt("embeddings.npz", _embeddings, "The plot of the test embeddings", embed)
    # Files that not every run has.
    if (path / "refresh.jsonl").is_file():
        run.refreshes = run.attempt("refresh.jsonl", _refreshes, "The weights of the views", train) or {}
    if (path / "geometry.json").is_file():
        measure = f"run: mvcl geometry {path}"
        run.geometry = run.attempt("geometry.json", read_geometry, "The geometry of the embeddings", measure)
    if (path / "time.json").is_file():
        run.seconds = run.attempt("time.json", _seconds, "The wall time", train) or {}
    return run


def kind(node: Mapping[str, Any]) -> str:
    """Class or function name of a part of a config, without mvcl's path; "" if it has none."""
    path = str(node.get("_type") or node.get("_function") or "")
    return path.rpartition(".")[2] if path.startswith("mvcl.") else path


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted field -> leaf value; the field of a nested object has the name of its class or function."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if key in ("_type", "_function"):
            continue
        flat[f"{prefix}{key}"] = kind(value) if isinstance(value, Mapping) else value
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
    return flat


def _or(frame: pd.DataFrame | None, other: pd.DataFrame) -> pd.DataFrame:
    return other if frame is None else frame


def _number(value: Any) -> float:
    """`value` if it is a finite number, else NaN."""
    return float(value) if type(value) in (int, float) and math.isfinite(value) else math.nan


def _config(file: Path) -> dict[str, Any]:
    config = _files.read_json(file)
    if not isinstance(config, dict):
        raise ValueError(f"it must be a JSON object, got {type(config).__name__}")
    return config


def _lines(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """Step and content of the lines that are whole; a killed run may leave an incomplete one."""
    found = []
    for line in file.read_bytes().decode(errors="replace").splitlines():
        try:
            record = json.loads(line, parse_constant=lambda _: math.inf)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and type(step := record.pop("step", None)) is int:
            found.append((step, record))
    return found


def _log(file: Path) -> pd.DataFrame:
    numbers = [
        {"step": step} | {name: value for name, value in record.items() if type(value) in (int, float)}
        for step, record in _lines(file)
    ]
    if not numbers:
        raise ValueError("no line has a step")
    return pd.DataFrame(numbers, dtype=float).groupby("step").last()  # a resumed run repeats some steps


def _refreshes(file: Path) -> dict[str, dict[int, np.ndarray]]:
    found: dict[str, dict[int, np.ndarray]] = {}
    for step, record in sorted(_lines(file), key=lambda line: line[0]):
        for name in {"weights", "clusters", "cosines", "losses"} & record.keys():
            array = np.asarray(record[name])
            square = array.ndim == 2 and array.dtype.kind in "if" and not np.ptp(array.shape)
            if name == "clusters" and (array.ndim != 2 or array.dtype.kind != "i"):
                raise ValueError(
                    f"clusters must be (views, examples) integers, got {array.dtype}{array.shape}"
                )
            if name != "clusters" and not (square and array.size):
                raise ValueError(f"{name} must be a square of numbers, got {array.dtype}{array.shape}")
            of = found.setdefault(name, {})
            if of and next(iter(of.values())).shape != array.shape:
                raise ValueError(f"{name} must have one shape at all steps, got {array.shape} at step {step}")
            of[step] = array
    return found


def _seconds(file: Path) -> dict[str, float]:
    return {str(phase): max(float(seconds), 0.0) for phase, seconds in _files.read_json(file).items()}


def _view_names(file: Path) -> list[str]:
    return [str(name) for name in _files.read_json(file)]


_EVALUATION = ("row", "column", "value", "deviation", "protocol", "better")


def _evaluation(file: Path) -> tuple[int | None, pd.DataFrame, list[str]]:
    content = _files.read_json(file)
    results = [
        (
            str(row),
            str(result["name"]),
            _number(result.get("value")),
            _number(result.get("deviation")),
            str(result.get("protocol", "")),
            str(result.get("better", "higher")),
        )
        for row, of in content["rows"].items()
        for result in of
    ]
    table = pd.DataFrame(results, columns=list(_EVALUATION)).drop_duplicates(["row", "column"], keep="last")
    step = content.get("step")
    return (step if type(step) is int else None), table, [str(text) for text in content.get("warnings", [])]


def _views(file: Path) -> Views:
    data = _files.read_npz(file)
    images, views, sizes, labels = (data[name] for name in ("images", "views", "sizes", "labels"))
    view_names = [str(name) for name in data["view_names"]]
    for name, array, axes in (("images", images, 4), ("views", views, 5)):
        if array.dtype != np.uint8 or array.ndim != axes or 0 in array.shape:
            raise ValueError(f"{name} must be uint8 with {axes} axes, got {array.dtype}{array.shape}")
    if not len(images) == len(views) == len(labels):
        counts = f"{len(images)}, {len(views)}, {len(labels)}"
        raise ValueError(f"images, views and labels must have equal lengths, got {counts}")
    if not views.shape[1] == len(sizes) == len(view_names):
        counts = f"{len(sizes)} and {len(view_names)}"
        raise ValueError(
            f"sizes and view_names must have an entry for each of {views.shape[1]} views, got {counts}"
        )
    if sizes.dtype.kind not in "iu" or not 1 <= sizes.min() <= sizes.max() <= views.shape[2]:
        raise ValueError(f"sizes must be whole numbers from 1 to {views.shape[2]}, got {sizes.tolist()}")
    return Views(images, views, [_class_name(data, label) for label in labels], sizes, view_names)


def _embeddings(file: Path) -> Embeddings:
    data = _files.read_npz(file)
    features, labels = data["features"], data["labels"]
    if features.ndim != 2 or features.dtype.kind != "f" or 0 in features.shape:
        raise ValueError(f"features must be floating (n, d), got {features.dtype}{features.shape}")
    if labels.shape != features.shape[:1] or labels.dtype.kind not in "iu":
        raise ValueError(f"labels must be {len(features)} integers, got {labels.dtype}{labels.shape}")
    if not np.isfinite(features).all():
        raise ValueError(f"{np.sum(~np.isfinite(features))} of the features are not finite")
    classes, places = np.unique(labels, return_inverse=True)
    return Embeddings(features, places, [_class_name(data, c) for c in classes])


def _class_name(data: Mapping[str, np.ndarray], label: int) -> str:
    names = data.get("class_names", [])
    return str(names[label]) if 0 <= label < len(names) else f"class {label}"


def read_geometry(file: Path) -> Geometry:
    """The content of a geometry.json.

    Raises:
      ValueError: it is damaged, or of another kind.
    """
    content = _files.read_json(file)
    with _files.reading(file, "geometry of a run"):
        outputs = {str(name): _output(str(name), plain) for name, plain in content["outputs"].items()}
        if not outputs:
            raise ValueError("it has no outputs")
        return Geometry(int(content["step"]), str(content["split"]), int(content["examples"]), outputs)


def _output(name: str, plain: Mapping[str, Any]) -> Output:
    rows = {
        str(row): {str(measure): float(value) for measure, value in values.items()}
        for row, values in plain["rows"].items()
    }
    views = [str(view) for view in plain["views"]]
    spectra = {str(row): np.asarray(s["eigenvalues"], float) for row, s in plain["spreads"].items()}
    alignment = np.array(plain["alignment"], float)  # null becomes NaN
    positives, negatives = (np.asarray(plain[key], float) for key in ("positives", "negatives"))
    k, counts = len(views), (*spectra.values(), positives, negatives)
    if alignment.shape != (k, k) or not k:
        raise ValueError(f"alignment of {name} must be ({k}, {k}), got {alignment.shape}")
    if any(x.ndim != 1 or not len(x) for x in counts):
        raise ValueError(f"eigenvalues and counts of {name} must be lists of numbers")
    numbers = np.array([value for values in rows.values() for value in values.values()])
    if not all(np.isfinite(x).all() for x in (*counts, numbers)):
        raise ValueError(f"the numbers of {name} must be finite")
    return Output(rows, views, spectra, alignment, positives, negatives)
