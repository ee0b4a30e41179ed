"""Run folders as the training loop writes them, with invented numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

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


@pytest.fixture
def make_run(tmp_path):
    """write_run in the test's folder."""
    return lambda name, **options: write_run(tmp_path / name, **options)


@pytest.fixture
def run(make_run) -> Path:
    return make_run("first")
