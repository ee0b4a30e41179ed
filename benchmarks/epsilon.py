"""Few-label accuracy on digits against epsilon, and against the mass that the plan gives the true tuples.

    python -m benchmarks.epsilon                     # train what docs/design/epsilon.json lacks, then write the page
    python -m benchmarks.epsilon --minutes 7         # stop after that time; the next call goes on
    python -m benchmarks.epsilon --page              # figure and page only
    python -m benchmarks.epsilon --sweeps            # what the search of m3g(mass_target=...) takes, no training

Every cell of (n, k, epsilon) and seed is a run of `digits:m3g` with batches of n examples, k views and
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
import math
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from mvcl import _files, losses, training, transport
from mvcl.evaluation import Classification

ROOT = Path(__file__).parents[1]
NS, KS, EPSILONS = (32, 64, 128), (2, 3, 4), (0.02, 0.05, 0.1, 0.2, 0.5)
# Cells that are trained with further seeds, for the noise.
SEEDS, SEEDED_N, SEEDED_KS = (1, 2), 64, (3,)
STEPS, LABELS, DRAWS = 130, 10, 10
FINDINGS = "## Findings\n"
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


def log_odds(row: Row) -> float:
    """Of the mass, above those of chance: 0 for an epsilon that goes to infinity, whatever n and k."""
    chance = row["n"] ** (1 - row["k"])
    return math.log(row["mass"] / (1 - row["mass"])) - math.log(chance / (1 - chance))


def plot(rows: list[Row], path: Path) -> None:
    """Accuracy against epsilon, mass and log-odds above chance; one line for each (n, k) with seed 0."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    x: dict[str, Callable[[Row], float]] = {
        "epsilon": lambda row: row["epsilon"],
        "mass of the true tuples": lambda row: row["mass"],
        "log-odds of that mass above chance": log_odds,
    }
    for axis, (label, of_row) in zip(axes, x.items()):
        for k, n in itertools.product(KS, NS):
            cell = [row for row in rows if (row["n"], row["k"], row["seed"]) == (n, k, 0)]
            style = {
                "color": f"C{KS.index(k)}",
                "marker": "os^"[NS.index(n)],
                "markersize": 4,
                "linewidth": 1,
            }
            axis.plot(
                [of_row(r) for r in cell], [100 * r["accuracy"] for r in cell], label=f"k {k}, n {n}", **style
            )
        axis.set(xlabel=label)
        axis.grid(alpha=0.3)
    axes[0].set(xscale="log", ylabel=f"accuracy with {LABELS} labels a class, %")
    axes[0].set_xticks(EPSILONS, [str(e) for e in EPSILONS])
    axes[0].set_xticks([], minor=True)
    axes[1].set(xscale="log")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    with rc_context({"svg.hashsalt": "epsilon"}):
        figure.savefig(path, metadata={"Date": None})


def table(rows: list[Row]) -> str:
    """Accuracy and mass of each (n, k) and epsilon, with seed 0."""
    found = {(r["n"], r["k"], r["epsilon"]): r for r in rows if r["seed"] == 0}
    lines = ["| k | n | " + " | ".join(f"ε = {e}" for e in EPSILONS) + " |"]
    lines.append("| ---: | ---: |" + " ---: |" * len(EPSILONS))
    for k, n in itertools.product(KS, NS):
        of_row = [found.get((n, k, e)) for e in EPSILONS]
        shown = [
            f"{100 * r['accuracy']:.1f}, {r['mass']:.2g}, {r['sweeps']:.0f}" if r else "" for r in of_row
        ]
        lines.append(f"| {k} | {n} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def seed_table(rows: list[Row]) -> str:
    """Accuracy of each seed where there are several, and their mean and standard deviation."""
    lines = ["| k | n | ε | accuracy by seed | mean ± std |", "| ---: | ---: | ---: | --- | ---: |"]
    for k, e in itertools.product(SEEDED_KS, EPSILONS):
        of_seed = [r for r in rows if (r["n"], r["k"], r["epsilon"]) == (SEEDED_N, k, e)]
        values = [100 * r["accuracy"] for r in sorted(of_seed, key=lambda r: r["seed"])]
        if len(values) > 1:
            each = ", ".join(f"{v:.1f}" for v in values)
            spread = f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
            lines.append(f"| {k} | {SEEDED_N} | {e} | {each} | {spread} |")
    return "\n".join(lines)


def page(rows: list[Row]) -> str:
    """The page without its findings, which stand between the markers of the written one."""
    first = rows[0]
    return f"""# Epsilon, the true tuples' mass, and few-label accuracy on digits

`python -m benchmarks.epsilon`, {len(rows)} runs of `digits:m3g` with batches of n examples, k views and
{STEPS} steps, one learning rate for all, on two CPU cores that were shared with other work. Accuracy on the 360 test
digits of a logistic regression on {LABELS} labels a class, the mean over {DRAWS} draws of the labels, which are the
same for every run with raw pixels at {100 * first["raw"]:.1f} % and the untrained encoder at
{100 * first["untrained"]:.1f} %. The mass is `sum_i P[i, ..., i]`, from n^(1-k) for a plan without information to 1 for
the true matching, averaged over the last quarter of the steps.

![Accuracy against epsilon, mass, and the log-odds of the mass above chance](epsilon.svg)

Accuracy in %, mass, and sweeps of the solver (at most 100), seed 0:

{table(rows)}

Three seeds of some cells:

{seed_table(rows)}

"""


def written(path: Path, rows: list[Row]) -> str:
    """The page with the findings of the file, which are written by hand."""
    old = path.read_text() if path.is_file() else ""
    return page(rows) + FINDINGS + old.partition(FINDINGS)[2]


def views(kind: str, n: int, k: int) -> jax.Array:
    """(k, n, 64) unit vectors: n directions, to which each view adds noise of that size ("0.3" for instance)."""
    rng = np.random.default_rng(0)
    instances, noise = rng.normal(size=(1, n, 64)), rng.normal(size=(k, n, 64))
    if kind == "independent":
        z = noise
    elif kind == "adversarial":  # the views of an instance are the views of others
        z = np.stack([np.roll(instances[0], l, axis=0) for l in range(k)]) + 0.1 * noise
    else:
        z = instances + float(kind.removeprefix("noise ")) * noise
    return jnp.asarray(z / np.linalg.norm(z, axis=-1, keepdims=True), jnp.float32)


def sweeps() -> str:
    """The table of docs/design/transport.md: sweeps with the search, and at the epsilon that it found."""
    lines = [
        "| n | k | views | target | epsilon | mass | sweeps | alone |",
        "| ---: | ---: | --- |" + " ---: |" * 5,
    ]
    searched = jax.jit(lambda z, target: losses.m3g_with_status(z, mass_target=target)[1], static_argnums=1)
    alone = jax.jit(lambda z, epsilon: losses.m3g_with_status(z, epsilon=epsilon)[1].n_iters)
    kinds = [("noise 0.3", 0.5), ("noise 1", 0.5), ("noise 1", 0.9), ("noise 2", 0.5), ("independent", 0.5)]
    for (n, k), (kind, target) in itertools.product(
        [(64, 2), (64, 3), (32, 4)], [*kinds, ("adversarial", 0.5)]
    ):
        z = views(kind, n, k)
        out = searched(z, target)
        cells = (n, k, kind, target, f"{out.epsilon:.4f}", f"{transport.true_tuple_mass(out):.2g}")
        lines.append(f"| {' | '.join(map(str, (*cells, out.n_iters, alone(z, out.epsilon))))} |")
    return "\n".join(lines)


def main() -> int:
    """Train the missing cells and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "docs" / "design" / "epsilon", help="page, figure and rows"
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run that would end later")
    parser.add_argument("--page", action="store_true", help="train nothing")
    parser.add_argument("--sweeps", action="store_true", help="print the sweeps of the search")
    options = parser.parse_args()
    if options.sweeps:
        print(sweeps())
        return 0
    logging.getLogger("absl").setLevel("ERROR")
    training.compilation_cache()
    rows = train_missing(options.out.with_suffix(".json"), 0 if options.page else options.minutes)
    if rows:
        plot(rows, options.out.with_suffix(".svg"))
        written_page = written(options.out.with_suffix(".md"), rows)
        _files.write_whole(options.out.with_suffix(".md"), written_page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
