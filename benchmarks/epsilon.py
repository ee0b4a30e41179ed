"""Few-label accuracy on digits against epsilon, and against the mass that the plan gives the true tuples.

    python -m benchmarks.epsilon                     # train what docs/epsilon.json lacks, then write the page
    python -m benchmarks.epsilon --minutes 7         # stop after that time; the next call goes on
    python -m benchmarks.epsilon --page              # figure and page only

Every cell of (n, k, epsilon) and seed is a run of `configs/digits.py:m3g` with batches of n examples, k views and
STEPS steps, trained and evaluated by `mvcl.training.train`. The learning rate is the same for all. The mass is the
training log's `true_tuple_mass`, averaged over the last quarter of the steps.
"""

import argparse
import contextlib
import dataclasses
import io
import itertools
import json
import logging
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import _files, losses, training
from mvcl.evaluation import Classification

ROOT = Path(__file__).parents[1]
NS, KS, EPSILONS = (32, 64, 128), (2, 3, 4), (0.02, 0.05, 0.1, 0.2, 0.5)
# Cells that are trained with further seeds, for the noise.
SEEDS, SEEDED_N, SEEDED_KS = (1, 2), 64, (3,)
STEPS, LABELS, DRAWS = 130, 10, 10
Row = dict[str, Any]
CELL = ("n", "k", "epsilon", "seed")


def cells() -> list[tuple[int, int, float, int]]:
    """(n, k, epsilon, seed) of all runs: the grid with seed 0, then further seeds of some cells."""
    grid = [(n, k, e, 0) for k, n, e in itertools.product(KS, NS, EPSILONS)]
    return grid + [(SEEDED_N, k, e, seed) for k, e, seed in itertools.product(SEEDED_KS, EPSILONS, SEEDS)]


def config_of(n: int, k: int, epsilon: float, seed: int) -> training.Config:
    """The config of one run."""
    base = training.load(ROOT / "configs" / "digits.py:m3g")
    return dataclasses.replace(
        base,
        views=dataclasses.replace(base.views, k=k),
        objective=partial(losses.m3g, epsilon=epsilon),
        train=dataclasses.replace(
            base.train, seed=seed, steps=STEPS, batch_size=n, evaluate_every=0, log_every=5
        ),
        checkpoint=training.Checkpoint(every_steps=STEPS),
        evaluation=Classification(labels_per_class=(LABELS,), draws=DRAWS),
    )


def run(n: int, k: int, epsilon: float, seed: int) -> Row:
    """Train one cell in a folder that is removed again; its row."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        table = training.train(config_of(n, k, epsilon, seed), Path(folder))
        lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    log = [record for record in map(json.loads, lines) if "loss" in record]
    late = [record for record in log if record["step"] > 0.75 * STEPS]
    few = f"{LABELS} labels/class"
    accuracy = {row: next(r.value for r in results if r.name == few) for row, results in table.items()}
    return {
        **dict(zip(CELL, (n, k, epsilon, seed))),
        "accuracy": accuracy["trained encoder"],
        "untrained": accuracy["untrained encoder"],
        "raw": accuracy["raw input"],
        "mass": float(np.mean([record["true_tuple_mass"] for record in late])),
        "first_mass": log[0]["true_tuple_mass"],
        "sweeps": float(np.mean([record["solver_iterations"] for record in late])),
        "loss": float(np.mean([record["loss"] for record in late])),
        "seconds": time.monotonic() - start,
    }


def train_missing(path: Path, minutes: float) -> list[Row]:
    """The rows of the file, and those of the cells that it lacks, written as each is done."""
    rows: list[Row] = json.loads(path.read_text()) if path.is_file() else []
    done = {tuple(row[name] for name in CELL) for row in rows}
    missing = [cell for cell in cells() if cell not in done]
    end, took = time.monotonic() + 60 * minutes, 0.0
    for i, cell in enumerate(missing):
        if time.monotonic() + took > end:
            print(f"{len(missing) - i} of {len(cells())} runs are left; the same command goes on", flush=True)
            break
        row = run(*cell)
        rows = sorted([*rows, row], key=lambda row: [row[name] for name in CELL])
        _files.write_whole(path, json.dumps(rows, indent=1) + "\n")
        took = row["seconds"]
        print(
            f"{len(rows)}/{len(cells())} {', '.join(f'{name} {row[name]}' for name in CELL)}: accuracy "
            f"{row['accuracy']:.3f}, mass {row['mass']:.3g}, {took:.0f} s; about "
            f"{took * (len(missing) - i - 1) / 60:.0f} min left",
            flush=True,
        )
    return rows


def main() -> int:
    """Train the missing cells and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "epsilon", help="page, figure and rows")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run after this time")
    parser.add_argument("--page", action="store_true", help="train nothing")
    options = parser.parse_args()
    logging.getLogger("absl").setLevel("ERROR")
    training.compilation_cache()
    train_missing(options.out.with_suffix(".json"), 0 if options.page else options.minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
