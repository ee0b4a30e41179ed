"""Read run folders, complete or not, into plain values."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from mvcl import _files

_T = TypeVar("_T")
IMAGES = "The images of the views"
_RESULT = ("row", "column", "value", "deviation", "protocol", "better")


class Views(NamedTuple):
    """Originals (m, H, W, C) and views (m, k, H, W, C), uint8; view v fills its first `sizes[v]` rows and columns."""

    images: np.ndarray
    views: np.ndarray
    classes: list[str]
    sizes: np.ndarray
    names: list[str]


class Embeddings(NamedTuple):
    """Test features (n, d), their labels (n,) from 0 and class names."""

    features: np.ndarray
    labels: np.ndarray
    class_names: list[str]


class Output(NamedTuple):
    """The geometry of the embeddings of the views at one output of the network."""

    rows: dict[str, dict[str, float]]  # a view or a summary of views -> measure -> value
    views: list[str]
    spectra: dict[str, np.ndarray]  # a view, or all views -> eigenvalues of the covariance, largest first
    alignment: np.ndarray  # (k, k) mean squared distance of two views; NaN where it is not defined
    positives: np.ndarray  # counts of the cosines of positives, in equal bins from -1 to 1
    negatives: np.ndarray


class Geometry(NamedTuple):
    """The content of geometry.json."""

    step: int
    split: str
    examples: int
    outputs: dict[str, Output]


@dataclass
class Run:
    """Content of a run folder; `missing` has the reasons for what is None or empty."""

    path: Path
    config: dict[str, Any] | None = None
    log: pd.DataFrame = field(default_factory=pd.DataFrame)  # by step; infinite where a number was not finite
    evaluation: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(_RESULT)))
    step: int | None = None  # of the evaluation
    warnings: list[str] = field(default_factory=list)  # of the evaluation
    views: Views | None = None
    embeddings: Embeddings | None = None
    # Name -> step -> array: weights, cosines and losses (k, k) of the pairs of views, clusters (k, n).
    refreshes: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    view_names: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of each phase of the training
    geometry: Geometry | None = None
    missing: list[tuple[str, str, str]] = field(default_factory=list)  # what, why, and what to do

    def attempt(
        self, name: str, read: Callable[[Path], _T], what: str, remedy: str, *, always: bool = True
    ) -> _T | None:
        """What `read` makes of a file of the folder; None, and a line in `missing`, if that fails."""
        file = self.path / name
        if not file.is_file():
            # Of a run in progress, whose process holds the lock, files are written later.
            if always and not _files.is_locked(self.path / ".lock"):
                self.missing.append((what, f"{name} is missing", remedy))
            return None
        try:
            return read(file)
        except Exception as error:  # a damaged file may raise anything; the page shows it
            reason = " ".join(str(error).removeprefix(f"{file} ").split())
            self.missing.append((what, f"{name} cannot be read ({type(error).__name__}: {reason})", remedy))
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
    evaluate, measure = f"run: mvcl evaluate {path}", f"run: mvcl geometry {path}"
    embed = f"run: mvcl embed {path} --split test --out {path / 'embeddings.npz'}"
    run.config = run.attempt("config.json", _config, "The configuration", train)
    log = run.attempt("metrics.jsonl", _log, "The curves", train)
    run.log = run.log if log is None else log
    evaluation = run.attempt("evaluation.json", _evaluation, "The evaluation table", evaluate)
    run.step, run.evaluation, run.warnings = evaluation or (None, run.evaluation, [])
    tables = (path / "scaling.json").is_file()  # which have no images
    run.view_names = run.attempt("scaling.json", _texts, "The names of the views", train, always=False) or []
    run.views = run.attempt("views.npz", _views, IMAGES, train, always=not tables)
    run.embeddings = run.attempt("embeddings.npz", _embeddings, "The plot of the test embeddings", embed)
    refreshes = run.attempt("refresh.jsonl", _refreshes, "The weights of the views", train, always=False)
    run.refreshes = refreshes or {}
    run.geometry = run.attempt(
        "geometry.json", read_geometry, "The geometry of the embeddings", measure, always=False
    )
    run.seconds = run.attempt("time.json", _seconds, "The wall time", train, always=False) or {}
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


def _need(holds: bool | np.bool_, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _number(value: Any) -> float:
    """`value` if it is a finite number, else NaN."""
    return float(value) if type(value) in (int, float) and math.isfinite(value) else math.nan


def _config(file: Path) -> dict[str, Any]:
    config = _files.read_json(file)
    _need(isinstance(config, dict), f"it must be a JSON object, got {type(config).__name__}")
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
    _need(bool(numbers), "no line has a step")
    return pd.DataFrame(numbers, dtype=float).groupby("step").last()  # a resumed run repeats some steps


def _refreshes(file: Path) -> dict[str, dict[int, np.ndarray]]:
    found: dict[str, dict[int, np.ndarray]] = {}
    for step, record in sorted(_lines(file), key=lambda line: line[0]):
        for name in {"weights", "clusters", "cosines", "losses"} & record.keys():
            of, array = found.setdefault(name, {}), np.asarray(record[name])
            whole = array.ndim == 2 and array.size > 0 and array.dtype.kind in "if"
            got = f"got {array.dtype}{array.shape}"
            if name == "clusters":
                _need(
                    whole and array.dtype.kind == "i", f"clusters must be (views, examples) integers, {got}"
                )
            else:
                _need(
                    whole and array.shape[0] == array.shape[1], f"{name} must be a square of numbers, {got}"
                )
            _need(
                all(other.shape == array.shape for other in of.values()), f"{name} must have one shape, {got}"
            )
            of[step] = array
    return found


def _seconds(file: Path) -> dict[str, float]:
    found = {str(phase): float(seconds) for phase, seconds in _files.read_json(file).items()}
    fit = all(0 <= seconds < 1e12 for seconds in found.values())
    _need(fit, f"seconds must be finite and not negative, got {found}")
    return found


def _texts(file: Path) -> list[str]:
    return [str(name) for name in _files.read_json(file)]


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
    table = pd.DataFrame(results, columns=list(_RESULT)).drop_duplicates(["row", "column"], keep="last")
    step = content.get("step")
    return (step if type(step) is int else None), table, [str(text) for text in content.get("warnings", [])]


def _views(file: Path) -> Views:
    data = _files.read_npz(file)
    images, views, sizes, labels = (data[name] for name in ("images", "views", "sizes", "labels"))
    names = [str(name) for name in data["view_names"]]
    for name, array, axes in (("images", images, 4), ("views", views, 5)):
        fit = array.dtype == np.uint8 and array.ndim == axes and 0 not in array.shape
        _need(fit, f"{name} must be uint8 with {axes} axes, got {array.dtype}{array.shape}")
    counts, wanted = (
        (len(images), len(labels), len(sizes), len(names)),
        2 * (len(views),) + 2 * views.shape[1:2],
    )
    message = f"images, labels, sizes and view_names must fit views of {views.shape}, got {counts}"
    _need(counts == wanted, message)
    fit = sizes.dtype.kind in "iu" and 1 <= sizes.min() <= sizes.max() <= views.shape[2]
    _need(fit, f"sizes must be whole numbers from 1 to {views.shape[2]}, got {sizes.tolist()}")
    return Views(images, views, [_class_name(data, label) for label in labels], sizes, names)


def _embeddings(file: Path) -> Embeddings:
    data = _files.read_npz(file)
    features, labels = data["features"], data["labels"]
    fit = features.ndim == 2 and features.dtype.kind == "f" and 0 not in features.shape
    _need(fit, f"features must be floating (n, d), got {features.dtype}{features.shape}")
    fit = labels.shape == features.shape[:1] and labels.dtype.kind in "iu"
    _need(fit, f"labels must be {len(features)} integers, got {labels.dtype}{labels.shape}")
    finite = np.isfinite(features)
    _need(finite.all(), f"{np.sum(~finite)} of the features are not finite")
    classes, places = np.unique(labels, return_inverse=True)
    return Embeddings(features, places, [_class_name(data, c) for c in classes])


def _class_name(data: Mapping[str, np.ndarray], label: int) -> str:
    names = data.get("class_names", np.array([]))
    return str(names[label]) if 0 <= label < len(names) else f"class {label}"


def read_geometry(file: Path) -> Geometry:
    """The content of a geometry.json.

    Raises:
      ValueError: it is damaged, or of another kind.
    """
    content = _files.read_json(file)
    with _files.reading(file, "geometry of a run"):
        outputs = {str(name): _output(str(name), plain) for name, plain in content["outputs"].items()}
        _need(bool(outputs), "it has no outputs")
        return Geometry(int(content["step"]), str(content["split"]), int(content["examples"]), outputs)


def _output(name: str, plain: Mapping[str, Any]) -> Output:
    rows = {str(row): {str(m): float(x) for m, x in of.items()} for row, of in plain["rows"].items()}
    views = [str(view) for view in plain["views"]]
    spectra = {str(row): np.asarray(s["eigenvalues"], float) for row, s in plain["spreads"].items()}
    alignment = np.array(plain["alignment"], float)  # null becomes NaN
    positives, negatives = (np.asarray(plain[key], float) for key in ("positives", "negatives"))
    counts = (*spectra.values(), positives, negatives)
    fit = bool(views) and alignment.shape == (len(views), len(views))
    _need(fit, f"alignment of {name} must be ({len(views)}, {len(views)}), got {alignment.shape}")
    lists = all(x.ndim == 1 and len(x) for x in counts)
    _need(lists, f"eigenvalues and counts of {name} must be lists of numbers")
    numbers = np.array([x for of in rows.values() for x in of.values()])
    finite = all(np.isfinite(x).all() for x in (*counts, numbers))
    _need(finite, f"the numbers of {name} must be finite")
    return Output(rows, views, spectra, alignment, positives, negatives)
