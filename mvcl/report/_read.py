"""Read run folders, complete or not, into plain values."""

import base64
import fcntl
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from mvcl import _buckets, _files, training
from mvcl._progress import duration

IMAGES = "The images of the views"
_EXAMPLES = 8  # rows of the grid of views
_WIDTH, _MIN_WIDTH = 72, 24  # of a picture in the grid, pixels
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
    # Of a few examples the class, and of the original and each view its name, a picture as a data: URL, whether its
    # pixels are shown sharp, and its width; smaller views are smaller.
    views: Sequence[tuple[str, list[tuple[str, str, bool, int]]]] = ()
    # Test features (n, d), labels (n,) from 0, classes.
    embeddings: tuple[np.ndarray, np.ndarray, list[str]] | None = None
    # Name -> steps and their arrays: weights, cosines and losses (k, k) of the pairs of views, clusters (k, n).
    refreshes: dict[str, tuple[list[int], np.ndarray]] = field(default_factory=dict)
    view_names: Sequence[str] = ()
    time: str = ""  # of the training, and its phases
    geometry: dict[str, Any] | None = None  # as `_geometry` returns it
    decomposition: dict[str, Any] | None = None  # as `_decomposition` returns it


def read_run(path: Path) -> Run:
    """Read all readable files of the run folder `path`; `ValueError` if it is no folder."""
    if not path.is_dir():
        raise ValueError(f"run_dirs must be folders that `mvcl train` has written, got {str(path)!r}")
    train = "repeat mvcl train with the run's config and the same --workdir to write it"
    embed = f"run: mvcl embed {path} --split test --out {path / 'embeddings.npz'}"
    measure, split = (f"run: mvcl {command} {path}" for command in ("geometry", "decompose"))
    found: dict[str, Any] = {}
    missing = []
    expected = ["config.json", "metrics.jsonl", "evaluation.json", "embeddings.npz", "views.npz"]
    for of, name, read, what, remedy in (
        ("config", "config.json", _files.read_json, "The configuration", train),
        ("log", "metrics.jsonl", _log, "The curves", train),
        ("", "evaluation.json", _evaluation, "The evaluation table", f"run: mvcl evaluate {path}"),
        ("view_names", "data.json", _names, "The names of the views", train),
        ("views", "views.npz", _views, IMAGES, train),
        ("embeddings", "embeddings.npz", _embeddings, "The plot of the test embeddings", embed),
        ("refreshes", "refresh.jsonl", _refreshes, "The weights of the views", train),
        ("geometry", "geometry.json", _geometry, "The geometry of the embeddings", measure),
        ("decomposition", "decomposition.json", _decomposition, "What the views tell", split),
        ("time", "time.json", _time, "The wall time", train),
    ):
        file = path / name
        if of == "views" and found.get("view_names"):
            continue  # given views, which are no images
        try:
            if file.is_file():
                value: Any = read(file)
                found |= {of: value} if of else value
            # Of a run in progress, whose process holds the lock, files are written later.
            elif name in expected and not is_locked(path / ".lock"):
                missing.append((what, f"{name} is missing", remedy))
        except Exception as error:  # a damaged file may raise anything; the page shows it
            reason = " ".join(str(error).removeprefix(f"{file} ").split())
            missing.append((what, f"{name} cannot be read ({type(error).__name__}: {reason})", remedy))
    return Run(path, missing, **found)


def is_locked(path: Path) -> bool:
    """Whether a process, maybe this one, holds the `flock` of a file.

    False where that cannot be told: of a file in a bucket, on a file system without locks, of a file of others.
    """
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def kind(node: Mapping[str, Any]) -> str:
    """Class or function name of a part of a config, without mvcl's path; "" if it has none."""
    path = str(node.get("_type") or node.get("_function") or "")
    return path.rpartition(".")[2] if path.startswith("mvcl.") else path


def _classes(data: Mapping[str, np.ndarray], labels: np.ndarray) -> list[str]:
    names = dict(enumerate(data.get("class_names", ())))
    return [str(names.get(label, f"class {label}")) for label in labels]


def _log(file: Path) -> pd.DataFrame:
    rows = [row for row in training.read_log(file) if "step" in row]
    if not rows:
        raise ValueError("no line has a step")
    # A number that was not finite is infinite here; nothing is what a step has not.
    known = ({k: v for k, v in row.items() if type(v) in (int, float)} for row in rows)
    numbers = [{k: math.inf if v != v else v for k, v in row.items()} for row in known]
    return pd.DataFrame(numbers, dtype=float).groupby("step").last()  # a resumed run repeats some steps


def runs(folder: str | Path = "runs") -> pd.DataFrame:
    """A row for each run in a folder and below, by its path: its results, `MEASURE` of the trained encoder and
    `ROW: MEASURE` of others, then the fields of its config by dotted name. `curves` has what they logged."""
    found = {}
    for place in (file.parent for file in sorted(_buckets.path(folder).rglob("config.json"))):
        file, row = place / "evaluation.json", training.flatten(_files.read_json(place / "config.json"))
        results = _evaluation(file)["evaluation"] if file.is_file() else pd.DataFrame(columns=_RESULT)
        every, whose = results["column"], results["row"]
        named = every.where(whose == "trained encoder", whose + ": " + every)
        found[str(place)] = dict(zip(named, results["value"])) | row
    return pd.DataFrame.from_dict(found, orient="index")


def curves(folder: str | Path = "runs") -> pd.DataFrame:
    """What the runs in a folder and below have logged, by run and step."""
    files = sorted(_buckets.path(folder).rglob("metrics.jsonl"))
    begun = [file for file in files if any("step" in row for row in training.read_log(file))]
    logs = {str(file.parent): _log(file) for file in begun}
    return pd.concat(logs, names=["run"]) if logs else pd.DataFrame()


def _refreshes(file: Path) -> dict[str, tuple[list[int], np.ndarray]]:
    looks, found = {row["step"]: row for row in training.read_log(file) if "step" in row}, {}
    for name, kinds in {"weights": "if", "clusters": "i", "cosines": "if", "losses": "if"}.items():
        of = {step: looks[step][name] for step in sorted(looks) if name in looks[step]}
        if of:
            arrays = np.array(list(of.values()))
            fit = arrays.ndim == 3 and arrays.size > 0 and arrays.dtype.kind in kinds
            if not fit or (name != "clusters" and arrays.shape[1] != arrays.shape[2]):
                got = f"{arrays.dtype}{arrays.shape[1:]}"
                raise ValueError(f"{name} must be a matrix at each step, got {got}")
            found[name] = (list(of), arrays)
    return found


def _time(file: Path) -> str:
    """`1h06m: training 75.0 % (50m00s), ...`, the longest phase first; empty without any."""
    seconds = {phase: float(seconds) for phase, seconds in _files.read_json(file).items()}
    if not all(0 <= s < 1e12 for s in seconds.values()):
        raise ValueError(f"seconds must be finite and not negative, got {seconds}")
    whole, longest = sum(seconds.values()), sorted(seconds.items(), key=lambda phase: -phase[1])
    parts = [f"{phase} {100 * of / whole:.1f} % ({duration(of)})" for phase, of in longest if of > 0]
    return f"{duration(whole)}: {', '.join(parts)}" if seconds else ""


def _evaluation(file: Path) -> dict[str, Any]:
    content = _files.read_json(file)
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


def _names(file: Path) -> Any:
    """Names of given views, of tables with their scaling."""
    data = _files.read_json(file)
    return data["scaling"] or (data["spec"]["view_names"] if data["spec"]["given"] else ())


def _views(file: Path) -> list[tuple[str, list[tuple[str, str, bool, int]]]]:
    data = _files.read_npz(file)
    sizes, labels = data["sizes"], data["labels"]
    widths = [_WIDTH, *(max(_MIN_WIDTH, round(_WIDTH * size / sizes.max())) for size in sizes.tolist())]
    names = ["original", *map(str, data["view_names"])]
    rows = []
    for name, image, of in list(zip(_classes(data, labels), data["images"], data["views"]))[:_EXAMPLES]:
        pictures = [image, *(view[:size, :size] for view, size in zip(of, sizes, strict=True))]
        shown = []
        for title, pixels, width in zip(names, pictures, widths, strict=True):
            picture = Image.fromarray(pixels[:, :, :3] if pixels.shape[2] >= 3 else pixels[:, :, 0])
            picture.thumbnail((128, 128))
            stream = io.BytesIO()
            picture.save(stream, "PNG")
            url = f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
            shown.append((title, url, max(picture.size) < 64, width))
        rows.append((name, shown))
    return rows


def _embeddings(file: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    data = _files.read_npz(file)
    features, labels = data["features"], data["labels"]
    if features.ndim != 2 or features.dtype.kind != "f" or 0 in features.shape:
        raise ValueError(f"features must be floating (n, d), got {features.dtype}{features.shape}")
    if labels.shape != features.shape[:1] or labels.dtype.kind not in "iu":
        raise ValueError(f"labels must be {len(features)} integers, got {labels.dtype}{labels.shape}")
    if bad := np.sum(~np.isfinite(features)):
        raise ValueError(f"{bad} of the features are not finite")
    known, places = np.unique(labels, return_inverse=True)
    return features, places, _classes(data, known)


def _geometry(file: Path) -> dict[str, Any]:
    """The content of a geometry.json: `step`, `split`, `examples`, and of each output of the network in `outputs`:

    `rows`, a view or a summary of views -> measure -> value; `views`; `spectra`, a view or all views -> eigenvalues of
    the covariance, largest first; `alignment` (k, k), NaN where it is not defined; `positives` and `negatives`, counts
    of their cosines in equal bins from -1 to 1.
    """
    content, outputs = _files.read_json(file), {}
    for name, plain in content["outputs"].items():
        views = [str(view) for view in plain["views"]]
        outputs[name] = {
            "rows": {row: {m: float(x) for m, x in of.items()} for row, of in plain["rows"].items()},
            "views": views,
            "spectra": {row: np.ravel(s["eigenvalues"]).astype(float) for row, s in plain["spreads"].items()},
            "alignment": np.array(plain["alignment"], float).reshape(len(views), len(views)),  # null: NaN
            **{key: np.ravel(plain[key]).astype(float) for key in ("positives", "negatives")},
        }
    if not outputs:
        raise ValueError("it has no outputs")
    step, examples = int(content["step"]), int(content["examples"])
    return {"step": step, "split": str(content["split"]), "examples": examples, "outputs": outputs}


def _decomposition(file: Path) -> dict[str, Any]:
    """The `step` of a decomposition.json, and its `rows`: of each its `protocol`, the names of its `parts`, the
    `entropy` of the labels or None, and `numbers`, a frame of what `evaluation.Estimate` has by subset and part."""
    content, rows = _files.read_json(file), {}
    for name, of in content["rows"].items():
        numbers = pd.DataFrame.from_dict(of["numbers"], orient="index", dtype=float)
        entropy = None if of["entropy"] is None else float(of["entropy"])
        parts = [str(part) for part in of["parts"]]
        if not np.isfinite(numbers.loc[parts].to_numpy()).all():
            raise ValueError(f"the parts of {name} must be finite")
        rows[name] = {"parts": parts, "entropy": entropy, "numbers": numbers, "protocol": str(of["protocol"])}
    if not rows:
        raise ValueError("it has no rows")
    return {"step": int(content["step"]), "rows": rows}
