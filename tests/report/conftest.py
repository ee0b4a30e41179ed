"""Run folders as the training loop writes them, with invented numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from mvcl import evaluation, training

PROTOCOLS = {
    "k-NN": "vote of the 200 nearest of 1437 training rows",
    "linear": "logistic regression on 1437 labels",
    "5 labels/class": "mean of 10 draws, seed 0",
    "10 labels/class": "mean of 10 draws, seed 0",
}


def write_run(
    path: Path, *, epsilon: float = 0.2, k: int = 4, classes: tuple[str, ...] = (), points: int = 40
) -> Path:
    """A complete run folder; `classes` renames the digits."""
    path.mkdir(parents=True)
    rng = np.random.default_rng(0)
    config = {
        "_type": "mvcl.training.Config",
        "data": {"_type": "mvcl.data.Digits"},
        "views": {
            "_type": "mvcl.training.Views",
            "k": k,
            "policy": {"_type": "mvcl.augment.Policy", "name": "simclr", "scale": [0.2, 1.0]},
        },
        "encoder": {"_type": "mvcl.models.ConvNet", "widths": [32, 64, 128]},
        "objective": {"_function": "mvcl.losses.m3g", "epsilon": epsilon},
        "train": {
            "_type": "mvcl.training.Train",
            "seed": 0,
            "batch_size": 256,
            "epochs": 60.0,
            "steps": None,
        },
    }
    (path / "config.json").write_text(json.dumps(config))
    with (path / "metrics.jsonl").open("w") as file:
        for step in range(0, 400, 5):
            record = {
                "step": step,
                "epoch": step / 5,
                "loss": 3 + 16 * np.exp(-step / 80) + 0.1 * rng.normal(),
                "chance": 19.1,
                "learning_rate": 2e-3 * np.cos(step / 400 * np.pi / 2),
                "views_per_second": 9000 + 200 * rng.normal(),
                "effective_rank": 60 - 40 * np.exp(-step / 100),
                "gradient_norm": 1 + rng.random(),
                "seconds": step / 10,
            }
            if step % 50 == 0:
                record["knn"] = 0.97 - 0.3 * np.exp(-step / 60)
            file.write(json.dumps(record) + "\n")
    values = {"trained encoder": 0.96, "untrained encoder": 0.85, "raw input": 0.9}
    rows = {
        row: [
            {"name": n, "value": v, "deviation": 0.012 if "class" in n else None, "protocol": p}
            for n, p in PROTOCOLS.items()
        ]
        for row, v in values.items()
    }
    (path / "evaluation.json").write_text(json.dumps({"step": 399, "rows": rows}))
    x, y = load_digits(return_X_y=True)
    names = np.array(classes or [f"digit {i}" for i in range(10)])
    images = (x[:12] * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1)
    views = np.stack([np.roll(images, shift, axis=2) for shift in range(k)], axis=1)
    np.savez(
        path / "views.npz",
        images=images,
        views=views,
        sizes=np.full(k, 8),
        view_names=[f"view {view + 1}" for view in range(k)],
        labels=y[:12],
        class_names=names,
    )
    np.savez(
        path / "embeddings.npz", features=x[:points].astype(np.float32), labels=y[:points], class_names=names
    )
    return path


def _write_geometry(path: Path, k: int = 3) -> Path:
    """The file that `mvcl geometry` writes, of random embeddings."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(1, 60, 8))
    names = ("<front>", *(f"view {view + 1}" for view in range(1, k)))
    outputs = {
        output: evaluation.geometry(centres + noise * rng.normal(size=(k, 60, 8)), names=names)
        for output, noise in (("encoder", 0.5), ("head", 0.2))
    }
    found = training.RunGeometry(400, "test", 60, outputs)
    (path / "geometry.json").write_text(json.dumps(found.plain()))
    return path


STUDY_MEASURES = [
    {"name": "k-NN", "label": "k-NN accuracy", "percent": True, "digits": 1, "better": "higher"},
    {"name": "rank", "label": "effective rank", "percent": False, "digits": 2, "better": ""},
]


def _write_study(folder: Path, *, columns: str | None = None, runs: bool = True, seeds: int = 3) -> Path:
    """The folder of a study of two objectives at k = 2 and 4: NAME.json, NAME.svg and the logs of its runs."""
    cells = []
    for i, (objective, k) in enumerate((o, k) for o in ("MV-DHEL", "<b>NT-Xent</b>") for k in (2, 4)):
        name = f"objective {objective}, k {k}"
        values = {str(s): {"k-NN": 90.0 + i + 0.5 * s, "rank": 5.0 + i} for s in range(seeds)}
        cell = {
            "name": name,
            "factors": {"objective": objective, "k": k},
            "folder": f"cells/cell-{i}",
            "printed": {"k-NN": 91.23} if i < 2 else {},
            "seeds": values,
            "status": dict.fromkeys(values, "finished"),
            "reasons": [],
            "intervals": {
                "k-NN": {"mean": 90.5 + i, "low": 89.25 + i, "high": 91.75 + i, "seeds": seeds},
                "rank": {"mean": 5.0 + i, "low": None, "high": None, "seeds": 1},
            },
            "differences": {}
            if i < 2
            else {
                "k-NN": {"to": "objective MV-DHEL", "mean": -2.0, "low": -2.5, "high": -1.5, "seeds": seeds}
            },
            "separates": {"k-NN": i != 3, "rank": None},
        }
        cells.append(cell)
        for seed in range(seeds) if runs else ():
            run = folder / cell["folder"] / str(seed)
            run.mkdir(parents=True)
            (run / "config.json").write_text("{}")
            lines = [
                {"step": s, "epoch": s / 10, "loss": 5 - i - 0.01 * s + 0.1 * seed, "effective_rank": 3 + i}
                for s in range(10, 60, 10)
            ]
            lines.append({"step": 50, "knn": 0.9 + 0.01 * seed, "score": "knn"})
            (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    content = {
        "name": "two_objectives",
        "scale": "small",
        "title": "Two objectives & their views",
        "about": "What the paper does.\n\nWhat is done here: `digits` only.\n\n- one\n- **two**",
        "command": "mvcl study two_objectives --scale small",
        "commit": "0123456789",
        "machine": "a processor, 2 cores",
        "versions": {"jax": "0.10.2"},
        "date": "2026-01-31",
        "cost": "5 minutes on 2 cores",
        "seconds": 272.0,
        "seeds": seeds,
        "factors": ["objective", "k"],
        "columns": columns,
        "along": "k",
        "reference": {"objective": "MV-DHEL"},
        "measures": STUDY_MEASURES,
        "cells": cells,
        "baselines": {"raw input": {"k-NN": 88.04}},
        "claims": [
            {
                "text": "MV-DHEL is above NT-Xent",
                "source": "Table II",
                "measure": "k-NN",
                "rule": "holds if the interval of the paired difference is above 0",
                "answer": "does not hold",
                "reason": "-2.0 [-2.5, -1.5]",
            }
        ],
    }
    (folder / "two_objectives.json").write_text(json.dumps(content))
    (folder / "two_objectives.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20" width="40" height="20">'
        '<script>alert(1)</script><path d="M 0 0 L 40 20" stroke="black"/></svg>'
    )
    return folder


@pytest.fixture
def write_geometry():
    """Writes geometry.json into a folder."""
    return _write_geometry


@pytest.fixture
def study_folder():
    """Writes the folder of a study."""
    return _write_study


@pytest.fixture
def make_run(tmp_path):
    """write_run in the test's folder."""
    return lambda name, **options: write_run(tmp_path / name, **options)


@pytest.fixture
def run(make_run) -> Path:
    return make_run("first")
