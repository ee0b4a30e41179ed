"""Read run folders, complete or not, into plain values."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import _buckets, _files
from mvcl.report._figures import Embedded

Scalars = dict[int, dict[str, float]]
DONE = "done"  # what a heartbeat says at the end of a run
_LATEST = 1e11  # seconds since 1970 that a heartbeat may tell
_LEASE_SECONDS = 180.0  # as in training


@dataclass(frozen=True)
class Row:
    """One result of the evaluation table; None if missing."""

    value: float | None
    deviation: float | None
    protocol: str
    better: str = "higher"
    """Which values are better: "higher", "lower" or ""."""


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
    """Test features (n, d), their labels (n,) and class names."""

    features: np.ndarray
    labels: np.ndarray
    class_names: list[str]


@dataclass(frozen=True)
class Look:
    """A refresh at one step: weights (k, k) of the pairs of views, clusters (k, n), similarities and losses (k, k)."""

    step: int
    weights: np.ndarray | None
    clusters: np.ndarray | None
    cosines: np.ndarray | None = None
    losses: np.ndarray | None = None


@dataclass(frozen=True)
class Output:
    """The geometry of the embeddings at one output: row -> measure -> value, and what is drawn of them."""

    rows: dict[str, dict[str, float]]
    drawn: Embedded


@dataclass(frozen=True)
class Geometry:
    """What `mvcl geometry` has measured of a state: output -> its geometry."""

    step: int
    split: str
    examples: int
    outputs: dict[str, Output]


@dataclass(frozen=True)
class Beat:
    """The last sign of life of a run: its step of how many, what it did, and when, in seconds since 1970."""

    step: int
    steps: int
    doing: str
    time: float
    alive: bool
    """Whether a process holds the lock of the folder."""


@dataclass(frozen=True)
class Run:
    """Content of a run folder; `missing` gives the reasons for None and empty values."""

    path: Path
    config: dict[str, Any] | None
    scalars: Scalars
    evaluation: dict[str, dict[str, Row]]
    evaluation_step: int | None
    warnings: list[str]
    """What the evaluation found suspect."""
    views: Views | None
    embeddings: Embeddings | None
    looks: list[Look] = field(default_factory=list)
    """In order of their steps; only some methods write them."""
    view_names: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each part, such as training; empty if heartbeat.json does not tell it."""
    sessions: int = 1
    """How many times the run was started."""
    geometry: Geometry | None = None
    """None without the file, which only `mvcl geometry` writes."""
    missing: list[tuple[str, str, str]] = field(default_factory=list)
    """(missing part, reason, what to do), one for each missing or unreadable file."""
    beat: Beat | None = None
    """None without a heartbeat that has all of it."""
    score: tuple[int, str, float] | None = None
    """Step, name and value of the last evaluation during training."""

    @property
    def is_live(self) -> bool:
        """Whether a process trains or evaluates the run: it has more to write."""
        return self.beat is not None and self.beat.alive

    @property
    def has_own_code(self) -> bool:
        """Whether its config names code from outside the package, which `mvcl train` needs the config's file for."""
        return '"_digest"' in json.dumps(self.config)


def read_run(path: Path) -> Run:
    """Read all readable files of the run folder `path`.

    Raises:
      ValueError: `path` is not a folder.
    """
    path = _buckets.path(path)
    if not path.is_dir():
        raise ValueError(f"run_dirs must be folders that `mvcl train` has written, got {str(path)!r}")
    missing: list[tuple[str, str, str]] = []
    train = "repeat mvcl train with the run's config and the same --workdir to write it"
    beat = _beat(path)
    live = beat is not None and beat.alive

    def attempt(name: str, lacks: str, remedy: str, read: Any) -> Any:
        file = path / name
        if live and not (file.is_file() and file.stat().st_size):
            return None  # it is written later
        if not file.is_file():
            missing.append((lacks, f"{name} is missing", remedy))
            return None
        try:
            with _buckets.at_hand(file) as there:
                return read(there)
        except Exception as error:  # a damaged file may raise anything; the page shows it
            missing.append((lacks, f"{name} cannot be read ({type(error).__name__}: {error})", remedy))
            return None

    config = attempt("config.json", "The configuration", train, _config)
    scalars = attempt("metrics.jsonl", "The curves", train, read_scalars)
    score = attempt("metrics.jsonl", "", "", _last_score) if scalars else None
    evaluation = attempt("evaluation.json", "The evaluation table", f"run: mvcl evaluate {path}", _evaluation)
    looks = (
        attempt("refresh.jsonl", "The weights of the views", train, _looks)
        if (path / "refresh.jsonl").is_file()
        else []
    )
    tables = (path / "scaling.json").is_file()  # tables have no images
    names = attempt("scaling.json", "The names of the views", train, _view_names) if tables else []
    views = None if tables else attempt("views.npz", "The images of the views", train, _views)
    embeddings = attempt(
        "embeddings.npz",
        "The plot of the test embeddings",
        f"run: mvcl embed {path} --split test --out {path / 'embeddings.npz'}",
        _embeddings,
    )
    geometry = None
    if (path / "geometry.json").is_file():
        geometry = attempt(
            "geometry.json", "The geometry of the embeddings", f"run: mvcl geometry {path}", read_geometry
        )
    goodput = None
    if (path / "heartbeat.json").is_file():
        goodput = attempt("heartbeat.json", "The wall time", train, _goodput)
    step, rows, warnings = evaluation or (None, {}, [])
    return Run(
        path,
        config,
        scalars or {},
        rows,
        step,
        warnings,
        views,
        embeddings,
        looks or [],
        names or [],
        seconds=goodput[0] if goodput else {},
        sessions=goodput[1] if goodput else 1,
        geometry=geometry,
        missing=missing,
        beat=beat,
        score=score,
    )


def _beat(path: Path) -> Beat | None:
    """The heartbeat; a run that has said it is done or has stopped is not alive, nor one whose process has ended."""
    try:
        content = json.loads((path / "heartbeat.json").read_text(encoding="utf-8"))
        step, steps, doing = int(content["step"]), int(content["steps"]), str(content["doing"])
        then = float(content["unix_time"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if not 0 <= then < _LATEST:
        return None
    alive = doing not in (DONE, "stopped") and _is_locked(path / ".lock")
    return Beat(step, steps, doing, then, alive)


def _is_locked(lock: Path) -> bool:
    """Whether a run holds the lock of its folder; one in a bucket must have been renewed within three minutes."""
    if not _buckets.is_remote(lock):
        return _files.is_locked(lock)
    try:
        return time.time() - float(json.loads(lock.read_text())["time"]) < _LEASE_SECONDS
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


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
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat[name] = kind(value)
            flat |= flatten(value, name + ".")
        else:
            flat[name] = value
    return flat


def differences(configs: Sequence[Mapping[str, Any] | None]) -> dict[str, list[Any]]:
    """Fields that differ between configs -> values; `...` if a config has no such field."""
    flat = [flatten(config or {}) for config in configs]
    fields = dict.fromkeys(name for config in flat for name in config)
    values = {name: [config.get(name, ...) for config in flat] for name in fields}
    return {name: row for name, row in values.items() if any(value != row[0] for value in row)}


def number(value: Any) -> float | None:
    """`value` if it is a finite number, else None."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _config(file: Path) -> dict[str, Any]:
    config = _files.read_json(file)
    if not isinstance(config, dict):
        raise ValueError(f"it must be a JSON object, got {type(config).__name__}")
    return config


def read_scalars(file: Path) -> Scalars:
    """Step -> the numbers of its lines in a metrics.jsonl.

    Raises:
      ValueError: it has no lines with a step.
    """
    steps: Scalars = {}
    for line in file.read_bytes().decode(errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # a killed run may leave an incomplete line
        step = record.get("step") if isinstance(record, dict) else None
        if isinstance(step, int) and not isinstance(step, bool):
            # A resumed run repeats some steps: keep the last values. Non-finite values are kept, to be reported.
            numbers = {k: float(v) for k, v in record.items() if type(v) in (int, float)}
            steps.setdefault(step, {}).update(numbers)
    if not steps:
        raise ValueError("no line has a step")
    return dict(sorted(steps.items()))


def _last_score(file: Path) -> tuple[int, str, float] | None:
    """Step, name and value of the last line that names its score."""
    for line in reversed(file.read_bytes().decode(errors="replace").splitlines()):
        if '"score"' not in line:
            continue
        try:
            record = json.loads(line)
            name = str(record["score"])
            return int(record["step"]), name, float(record[name])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue  # a killed run may leave an incomplete line
    return None


_LOOK = ("weights", "clusters", "cosines", "losses")


def _looks(file: Path) -> list[Look]:
    looks: dict[int, Look] = {}
    for line in file.read_bytes().decode(errors="replace").splitlines():
        try:
            record = json.loads(line)
            arrays = {name: np.asarray(record[name]) for name in _LOOK if name in record}
            step = int(record["step"])
        except (ValueError, KeyError, TypeError):
            continue  # a killed run may leave an incomplete line
        for name in ("weights", "cosines", "losses"):
            of = arrays.get(name)
            if of is not None and (of.ndim != 2 or of.dtype.kind not in "if" or np.ptp(of.shape)):
                raise ValueError(f"{name} must be a square of numbers, got {of.dtype}{list(of.shape)}")
        weights, clusters = arrays.get("weights"), arrays.get("clusters")
        if clusters is not None and (clusters.ndim != 2 or clusters.dtype.kind != "i"):
            raise ValueError(
                f"clusters must be (views, examples) integers, got {clusters.dtype}{list(clusters.shape)}"
            )
        looks[step] = Look(step, weights, clusters, arrays.get("cosines"), arrays.get("losses"))
    return [looks[step] for step in sorted(looks)]


def _goodput(file: Path) -> tuple[dict[str, float], int]:
    content = json.loads(file.read_text(encoding="utf-8")).get("goodput", {"seconds": {}, "sessions": 1})
    return {str(part): float(value) for part, value in content["seconds"].items()}, int(content["sessions"])


def _view_names(file: Path) -> list[str]:
    return [str(name) for name in _files.read_json(file)]


def _evaluation(file: Path) -> tuple[int | None, dict[str, dict[str, Row]], list[str]]:
    content = _files.read_json(file)
    rows = {
        str(row): {
            str(result["name"]): Row(
                number(result.get("value")),
                number(result.get("deviation")),
                str(result.get("protocol", "")),
                str(result.get("better", "higher")),
            )
            for result in results
        }
        for row, results in content["rows"].items()
    }
    step = content.get("step")
    warnings = [str(text) for text in content.get("warnings", [])]
    return (step if isinstance(step, int) else None), rows, warnings


def _views(file: Path) -> Views:
    data = _files.read_npz(file)
    images, views = data["images"], data["views"]
    sizes, view_names = data["sizes"], [str(name) for name in data["view_names"]]
    labels, class_names = data["labels"], _names(data)
    for name, array, axes in (("images", images, 4), ("views", views, 5)):
        if array.dtype != np.uint8 or array.ndim != axes or 0 in array.shape:
            raise ValueError(f"{name} must be uint8 with {axes} axes, got {array.dtype}{list(array.shape)}")
    if not len(images) == len(views) == len(labels):
        raise ValueError(
            f"images, views and labels differ in length: {len(images)}, {len(views)}, {len(labels)}"
        )
    if not views.shape[1] == len(sizes) == len(view_names):
        raise ValueError(
            f"sizes and view_names must have an entry for each of {views.shape[1]} views, got {len(sizes)} and "
            f"{len(view_names)}"
        )
    if not (np.issubdtype(sizes.dtype, np.integer) and 1 <= sizes.min() <= sizes.max() <= views.shape[2]):
        raise ValueError(
            f"sizes must be whole numbers of pixels from 1 to {views.shape[2]}, got {sizes.tolist()}"
        )
    return Views(images, views, [_name(class_names, label) for label in labels], sizes, view_names)


def _embeddings(file: Path) -> Embeddings:
    data = _files.read_npz(file)
    features, labels, class_names = data["features"], data["labels"], _names(data)
    if features.ndim != 2 or not np.issubdtype(features.dtype, np.floating) or 0 in features.shape:
        raise ValueError(f"features must be floating (n, d), got {features.dtype}{list(features.shape)}")
    if labels.shape != features.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be {len(features)} integers, got {labels.dtype}{list(labels.shape)}")
    if not np.isfinite(features).all():
        raise ValueError(f"{np.sum(~np.isfinite(features))} of the features are not finite")
    kinds = np.unique(labels)
    return Embeddings(features, np.searchsorted(kinds, labels), [_name(class_names, c) for c in kinds])


def read_geometry(file: Path) -> Geometry:
    """The content of a geometry.json.

    Raises:
      ValueError: it is damaged, or of another kind.
    """
    with _files.reading(file, "geometry of a run"):
        content = _files.read_json(file)
        outputs = {str(name): _output(str(name), plain) for name, plain in content["outputs"].items()}
        if not outputs:
            raise ValueError("it has no outputs")
        return Geometry(int(content["step"]), str(content["split"]), int(content["examples"]), outputs)


def _output(name: str, plain: Mapping[str, Any]) -> Output:
    views = [str(view) for view in plain["views"]]
    rows = {
        str(row): {str(measure): float(value) for measure, value in values.items()}
        for row, values in plain["rows"].items()
    }
    spectra = {str(row): np.asarray(s["eigenvalues"], float) for row, s in plain["spreads"].items()}
    alignment = np.array([[np.nan if x is None else float(x) for x in row] for row in plain["alignment"]])
    positives, negatives = (np.asarray(plain[key], float) for key in ("positives", "negatives"))
    k = len(views)
    if alignment.shape != (k, k) or not k:
        raise ValueError(f"alignment of {name} must be ({k}, {k}), got {list(alignment.shape)}")
    if any(x.ndim != 1 or not len(x) for x in (*spectra.values(), positives, negatives)):
        raise ValueError(f"eigenvalues and counts of {name} must be lists of numbers")
    numbers = [value for values in rows.values() for value in values.values()]
    if not all(np.isfinite(x).all() for x in (*spectra.values(), positives, negatives, np.array(numbers))):
        raise ValueError(f"the numbers of {name} must be finite")
    return Output(rows, Embedded(views, spectra, alignment, positives, negatives))


def _names(data: Mapping[str, np.ndarray]) -> list[str]:
    return [str(name) for name in data["class_names"]] if "class_names" in data else []


def _name(class_names: list[str], label: Any) -> str:
    return class_names[int(label)] if 0 <= int(label) < len(class_names) else f"class {int(label)}"
