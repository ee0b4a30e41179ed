"""Read run folders, complete or not, into plain values."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mvcl import _files

IMAGES = "The images of the views"
_RESULT = ["row", "column", "value", "deviation", "protocol", "better"]


@dataclass
class Run:
    """Content of a run folder; `missing` has the reasons for what is None or empty."""

    path: Path
    missing: list[tuple[str, str, str]]  # what, why, and what to do
    config: dict[str, Any] | None = None
    log: pd.DataFrame = field(default_factory=pd.DataFrame)  # by step; infinite where a number was not finite
    step: int | None = None  # of the evaluation
    evaluation: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=_RESULT))
    warnings: Sequence[str] = ()  # of the evaluation
    # Originals (m, H, W, C) and views (m, k, H, W, C), uint8, classes (m), sizes and names (k): view v fills its first
    # sizes[v] rows and columns.
    views: tuple[np.ndarray, np.ndarray, list[str], np.ndarray, list[str]] | None = None
    # Test features (n, d), labels (n,) from 0, classes.
    embeddings: tuple[np.ndarray, np.ndarray, list[str]] | None = None
    # Name -> step -> array: weights, cosines and losses (k, k) of the pairs of views, clusters (k, n).
    refreshes: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    view_names: Sequence[str] = ()
    seconds: dict[str, float] = field(default_factory=dict)  # of each phase of the training
    geometry: dict[str, Any] | None = None  # as `read_geometry` returns it


def read_run(path: Path) -> Run:
    """Read all readable files of the run folder `path`; `ValueError` if it is no folder."""
    if not path.is_dir():
        raise ValueError(f"run_dirs must be folders that `mvcl train` has written, got {str(path)!r}")
    train = "repeat mvcl train with the run's config and the same --workdir to write it"
    embed = f"run: mvcl embed {path} --split test --out {path / 'embeddings.npz'}"
    measure = f"run: mvcl geometry {path}"
    found: dict[str, Any] = {}
    missing = []
    expected = {"config.json", "metrics.jsonl", "evaluation.json", "embeddings.npz"}
    if not (path / "scaling.json").is_file():  # which runs on tables have, and no images
        expected.add("views.npz")
    for of, name, read, what, remedy in (
        ("config", "config.json", _object, "The configuration", train),
        ("log", "metrics.jsonl", _log, "The curves", train),
        ("", "evaluation.json", _evaluation, "The evaluation table", f"run: mvcl evaluate {path}"),
        ("view_names", "scaling.json", _object, "The names of the views", train),
        ("views", "views.npz", _views, IMAGES, train),
        ("embeddings", "embeddings.npz", _embeddings, "The plot of the test embeddings", embed),
        ("refreshes", "refresh.jsonl", _refreshes, "The weights of the views", train),
        ("geometry", "geometry.json", read_geometry, "The geometry of the embeddings", measure),
        ("seconds", "time.json", _seconds, "The wall time", train),
    ):
        file = path / name
        try:
            if file.is_file():
                value: Any = read(file)
                found |= {of: value} if of else value
            # Of a run in progress, whose process holds the lock, files are written later.
            elif name in expected and not _files.is_locked(path / ".lock"):
                missing.append((what, f"{name} is missing", remedy))
        except Exception as error:  # a damaged file may raise anything; the page shows it
            reason = " ".join(str(error).removeprefix(f"{file} ").split())
            missing.append((what, f"{name} cannot be read ({type(error).__name__}: {reason})", remedy))
    return Run(path, missing, **found)


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


def _classes(data: Mapping[str, np.ndarray], labels: np.ndarray) -> list[str]:
    names = dict(enumerate(data.get("class_names", ())))
    return [str(names.get(label, f"class {label}")) for label in labels]


def _object(file: Path) -> dict[str, Any]:
    content = _files.read_json(file)
    _need(isinstance(content, dict), f"it must be a JSON object, got {type(content).__name__}")
    return content


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
            fit = array.ndim == 2 and array.size > 0 and array.dtype.kind in "if"
            got = f"got {array.dtype}{array.shape}"
            if name == "clusters":
                _need(fit and array.dtype.kind == "i", f"{name} must be (views, examples) integers, {got}")
            else:
                _need(fit and array.shape[0] == array.shape[1], f"{name} must be a square of numbers, {got}")
            _need(all(x.shape == array.shape for x in of.values()), f"{name} must have one shape, {got}")
            of[step] = array
    return found


def _seconds(file: Path) -> dict[str, float]:
    found = {phase: float(seconds) for phase, seconds in _object(file).items()}
    fit = all(0 <= seconds < 1e12 for seconds in found.values())
    _need(fit, f"seconds must be finite and not negative, got {found}")
    return found


def _evaluation(file: Path) -> dict[str, Any]:
    content = _object(file)
    results = [
        {"protocol": "", "better": "higher"} | of | {"row": row, "column": of["name"]}
        for row, measured in content["rows"].items()
        for of in measured
    ]
    types = dict.fromkeys(_RESULT, str) | {"value": float, "deviation": float}
    table = pd.DataFrame(results, columns=_RESULT).astype(types)
    table = table.replace([math.inf, -math.inf], math.nan).drop_duplicates(["row", "column"], keep="last")
    step, warnings = content.get("step"), [str(text) for text in content.get("warnings", [])]
    return {"step": step if type(step) is int else None, "evaluation": table, "warnings": warnings}


def _views(file: Path) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray, list[str]]:
    data = _files.read_npz(file)
    images, views, sizes, labels = (data[name] for name in ("images", "views", "sizes", "labels"))
    names = [str(name) for name in data["view_names"]]
    for name, array, axes in (("images", images, 4), ("views", views, 5)):
        fit = array.dtype == np.uint8 and array.ndim == axes and 0 not in array.shape
        _need(fit, f"{name} must be uint8 with {axes} axes, got {array.dtype}{array.shape}")
    counts = (len(images), len(labels), len(sizes), len(names))
    fit = counts == 2 * views.shape[:1] + 2 * views.shape[1:2]
    _need(fit, f"images, labels, sizes and view_names must fit views of {views.shape}, got {counts}")
    fit = sizes.dtype.kind in "iu" and 1 <= sizes.min() <= sizes.max() <= views.shape[2]
    _need(fit, f"sizes must be whole numbers from 1 to {views.shape[2]}, got {sizes.tolist()}")
    return images, views, _classes(data, labels), sizes, names


def _embeddings(file: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    data = _files.read_npz(file)
    features, labels = data["features"], data["labels"]
    fit = features.ndim == 2 and features.dtype.kind == "f" and 0 not in features.shape
    _need(fit, f"features must be floating (n, d), got {features.dtype}{features.shape}")
    fit = labels.shape == features.shape[:1] and labels.dtype.kind in "iu"
    _need(fit, f"labels must be {len(features)} integers, got {labels.dtype}{labels.shape}")
    finite = np.isfinite(features)
    _need(finite.all(), f"{np.sum(~finite)} of the features are not finite")
    known, places = np.unique(labels, return_inverse=True)
    return features, places, _classes(data, known)


def read_geometry(file: Path) -> dict[str, Any]:
    """The content of a geometry.json: `step`, `split`, `examples`, and of each output of the network in `outputs`:

    `rows`, a view or a summary of views -> measure -> value; `views`; `spectra`, a view or all views -> eigenvalues of
    the covariance, largest first; `alignment` (k, k), NaN where it is not defined; `positives` and `negatives`, counts
    of their cosines in equal bins from -1 to 1.

    Raises:
      ValueError: it is damaged, or of another kind.
    """
    content = _files.read_json(file)
    with _files.reading(file, "geometry of a run"):
        outputs = {name: _output(name, plain) for name, plain in content["outputs"].items()}
        _need(bool(outputs), "it has no outputs")
        step, examples = int(content["step"]), int(content["examples"])
        return {"step": step, "split": str(content["split"]), "examples": examples, "outputs": outputs}


def _output(name: str, plain: Mapping[str, Any]) -> dict[str, Any]:
    rows = {row: {measure: float(x) for measure, x in of.items()} for row, of in plain["rows"].items()}
    views = [str(view) for view in plain["views"]]
    spectra = {row: np.asarray(s["eigenvalues"], float) for row, s in plain["spreads"].items()}
    alignment = np.array(plain["alignment"], float)  # null becomes NaN
    both = {key: np.asarray(plain[key], float) for key in ("positives", "negatives")}
    counts = (*spectra.values(), *both.values())
    fit = bool(views) and alignment.shape == (len(views), len(views))
    _need(fit, f"alignment of {name} must be ({len(views)}, {len(views)}), got {alignment.shape}")
    lists = all(x.ndim == 1 and len(x) for x in counts)
    _need(lists, f"eigenvalues and counts of {name} must be lists of numbers")
    numbers = np.array([x for of in rows.values() for x in of.values()])
    finite = all(np.isfinite(x).all() for x in (*counts, numbers))
    _need(finite, f"the numbers of {name} must be finite")
    return {"rows": rows, "views": views, "spectra": spectra, "alignment": alignment, **both}
