"""SEM on handwritten.mat: losses, weightings, ablations and baselines; and what a view of noise does. Over seeds.

    python -m benchmarks.sem --data handwritten.mat                    # or: make reproduce-sem DATA=handwritten.mat
    python -m benchmarks.sem --data handwritten.mat --rows "InfoNCE"   # rows whose names contain a word
    python -m benchmarks.sem --digits                                  # the digits with and without noise; offline
    python -m benchmarks.sem --write                                   # also the tables and the picture of docs/sem.md

Each row and seed is one run of `training.train` in OUT/DATA/ROW/SEED: 100 epochs of reconstruction, then 2 rounds of
50; a second call continues what is unfinished. The rows of a seed share the reconstruction: it is a run of its own,
whose last checkpoint each row continues from. Batches of 256, Adam 3e-4, temperature 1.0, the inputs in [0, 1] column
by column. Measured is K-means on the embeddings of all views side by side, the mean of 10 runs.
"""

import argparse
import dataclasses
import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mvcl import data, evaluation, losses, methods, training
from mvcl.metrics import clustering_accuracy

DOCS = Path(__file__).parents[1] / "docs" / "sem.md"
OUT = Path("runs/sem")
PRETRAIN, ROUNDS, EPOCHS, BATCH, RATE, WATCH = 100, 2, 50, 256, 3e-4, 10
HANDWRITTEN, DIGITS, NOISE = "handwritten", "digits_views", "digits_views and noise"
SMALL: dict[str, Any] = {
    "hidden": (256, 256, 512),
    "features": 128,
    "embedding": 64,
}  # configs/xu/sem.py:digits_views
MEASURES = ("ACC", "NMI", "ARI", "purity")
PAIRS: dict[str, losses.Loss] = {
    "InfoNCE": partial(losses.nt_xent, temperature=1.0),
    "PSCL": losses.spectral,
    "RINCE": partial(losses.rince, temperature=0.5),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table: what is compared, with what weights and how much reconstruction."""

    name: str
    pair: str = "InfoNCE"
    weights: Literal["cmi", "jsd", "mmd", "none"] = "cmi"
    lam: float = 1.0
    pairs: Literal["unordered", "ordered", "all"] = "all"
    sample_weights: bool = False


# The most telling rows first: a run that is cut short has these.
ROWS = (
    Row("SEM, InfoNCE, CMI"),
    Row("InfoNCE without W and R", weights="none", lam=0.0),
    Row("InfoNCE without R", lam=0.0),
    Row("InfoNCE without W", weights="none"),
    Row("CMC-style sum", weights="none", lam=0.0, pairs="unordered"),
    Row("SEM, InfoNCE, MMD", weights="mmd"),
    Row("SEM, InfoNCE, JSD", weights="jsd"),
    Row("SEM, PSCL, CMI", "PSCL", "cmi"),
    Row("SEM, PSCL, MMD", "PSCL", "mmd"),
    Row("SEM, PSCL, JSD", "PSCL", "jsd"),
    Row("SEM, RINCE, CMI", "RINCE", "cmi"),
    Row("SEM, RINCE, MMD", "RINCE", "mmd"),
    Row("SEM, RINCE, JSD", "RINCE", "jsd"),
    Row("SEM, InfoNCE, CMI, sample weights", sample_weights=True),
)
DIGIT_ROWS = (ROWS[1], ROWS[2], ROWS[0], ROWS[-1])


@dataclasses.dataclass(frozen=True)
class Table:
    """A data set, the sizes of its networks and the rows that are trained on it."""

    name: str
    source: Any
    rows: tuple[Row, ...]
    sizes: dict[str, Any] = dataclasses.field(default_factory=dict)
    pretrain: int = PRETRAIN
    rounds: int = ROUNDS
    epochs: int = EPOCHS
    protocol: evaluation.Clustering = dataclasses.field(
        default_factory=partial(evaluation.Clustering, features="head", svm_share=0)
    )


def config_of(table: Table, row: Row, seed: int) -> training.Config:
    """One run of a row."""
    return training.Config(
        data=table.source,
        objective=losses.all_pairs(PAIRS[row.pair], pairs=row.pairs, reduction="sum"),
        method=methods.Sem(
            weights=row.weights,
            sample_weights=row.sample_weights,
            lam=row.lam,
            pretrain_epochs=table.pretrain,
            update_epochs=table.epochs,
            watch_epochs=WATCH,
            **table.sizes,
        ),
        optimizer=training.AdamW(learning_rate=RATE, end_learning_rate=RATE),
        train=training.Train(
            seed=seed,
            epochs=table.pretrain + table.rounds * table.epochs,
            batch_size=BATCH,
            precision="float32",
            evaluate_every=0,
        ),
        checkpoint=training.Checkpoint(keep=1),
        evaluation=table.protocol,
    )


def trained(table: Table, row: Row, seed: int, out: Path) -> Path:
    """The folder of a row's finished run; it is trained, or continued, where it is not."""
    folder, config = place(out, table, row, seed), config_of(table, row, seed)
    if not folder.is_dir():
        # With sample weights the state holds more, so that those rows have a reconstruction of their own.
        kind = Row(
            "reconstruction" + ", sample weights" * row.sample_weights, sample_weights=row.sample_weights
        )
        shared, first = place(out, table, kind, seed), config_of(table, kind, seed)
        quick = dataclasses.replace(table.protocol, runs=1, starts=1)
        length = dataclasses.replace(first.train, epochs=table.pretrain)
        training.train(dataclasses.replace(first, train=length, evaluation=quick), shared)
        begun = folder.with_name(f".{folder.name}")
        shutil.rmtree(begun, ignore_errors=True)
        shutil.copytree(shared / "checkpoints", begun / "checkpoints")
        (begun / "config.json").write_text(training.to_json(training.prepare(config).config))
        begun.replace(folder)
    training.train(config, folder)
    return folder


def place(out: Path, table: Table, row: Row, seed: int) -> Path:
    """The folder of a run."""
    return out / table.name.replace(" ", "_") / row.name.replace(", ", "_").replace(" ", "_") / str(seed)


def trial(folder: Path) -> dict[str, Any]:
    """What the tables take from the folder of a finished run."""
    saved = json.loads((folder / "evaluation.json").read_text())
    scores = {row: {result["name"]: result for result in results} for row, results in saved["rows"].items()}
    mine, looks = scores["trained encoder"], lines_of(folder / "refresh.jsonl")
    with np.load(folder / "embeddings.npz") as arrays:
        labels = arrays["labels"]
    log = [line for line in lines_of(folder / "metrics.jsonl") if "loss" in line]  # the others are scores
    per_epoch = log[-1]["step"] / log[-1]["epoch"]
    views = [name for name in mine if name.endswith(" ACC") and name != "best view ACC"]
    # Recorded before a step, so that the last record is not the end: that is the mean of 10 runs of K-means.
    curve = [
        [clustering_accuracy(labels, np.asarray(clusters)) for clusters in look["clusters"]] for look in looks
    ]
    return {
        **{measure: mine[measure]["value"] for measure in MEASURES},
        "raw": scores["raw input"],
        "epochs": [round(look["step"] / per_epoch) for look in looks] + [round(saved["step"] / per_epoch)],
        "views": [*curve, [mine[name]["value"] for name in views]],
        "weights": [look["weights"] for look in looks if "weights" in look],
        "epoch_seconds": per_epoch
        * float(np.median([row["seconds_step"] + row["seconds_data"] for row in log])),
    }


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The lines of a log."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def finished(table: Table, row: Row, out: Path) -> dict[int, dict[str, Any]]:
    """Seed to trial, of a row's finished runs."""
    folder = place(out, table, row, 0).parent
    return {
        int(file.parent.name): trial(file.parent)
        for file in sorted(folder.glob("[0-9]*/evaluation.json"), key=lambda file: int(file.parent.name))
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="handwritten.mat, or another table; its name is the folder's"
    )
    parser.add_argument("--digits", action="store_true", help="the digits, with and without noise")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument(
        "--write", action="store_true", help="write the tables and the picture of docs/sem.md"
    )
    arguments = parser.parse_args()
    if not arguments.data and not arguments.digits and not arguments.write:
        parser.error("--data names handwritten.mat; --digits needs none")
    training.compilation_cache()
    chosen = digits() if arguments.digits else []
    if arguments.data:
        name = arguments.data.stem
        chosen.insert(0, Table(name, data.Tables(path=str(arguments.data)), ROWS))
    runs = [
        (table, row, seed)
        for table in chosen
        for row in table.rows
        if arguments.rows in row.name
        for seed in arguments.seeds
    ]
    for number, (table, row, seed) in enumerate(runs, 1):
        print(f"{table.name}, run {number} of {len(runs)}: {row.name}, seed {seed}", flush=True)
        trained(table, row, seed, arguments.out)
    for table in chosen:
        print(
            f"\n{table.name}\n", *main_table(table, arguments.out), *by_seed(table, arguments.out), sep="\n"
        )
    if arguments.write:
        write(arguments.out, DOCS)


def digits() -> list[Table]:
    """The digits without and with noise."""
    return [
        Table(DIGITS, data.DigitsViews(), DIGIT_ROWS, SMALL),
        Table(NOISE, data.DigitsViews(noise=True), DIGIT_ROWS, SMALL),
    ]


def cell(values: Any) -> str:
    """Mean and deviation over seeds, in percent."""
    spread = f" ± {100 * float(np.std(values, ddof=1)):.1f}" if len(values) > 1 else ""
    return f"{100 * float(np.mean(values)):.1f}{spread}"


def write(out: Path, page: Path) -> None:
    """The tables between the marks of docs/sem.md, and the picture beside it, of the runs that there are."""
    text, table = page.read_text(), Table(HANDWRITTEN, None, ROWS)
    for mark, lines in (("handwritten", main_table(table, out)), ("noise", noise_table(out))):
        if len(lines) > 2:
            before, rest = text.split(f"<!-- {mark} -->\n", 1)
            after = rest.split(f"<!-- end {mark} -->", 1)[1]
            text = f"{before}<!-- {mark} -->\n" + "\n".join(lines) + f"\n<!-- end {mark} -->{after}"
    page.write_text(text)
    draw(table, out, page.with_suffix(".svg"))


def by_seed(table: Table, out: Path) -> list[str]:
    """A line a run, in percent: its ACC, and that of each view alone before and after the rounds."""

    def percent(values: Sequence[float]) -> str:
        return " ".join(f"{100 * value:.1f}" for value in values)

    return [
        f"{row.name}, seed {seed}: ACC {percent([t['ACC']])}; views {percent(t['views'][0])} -> "
        f"{percent(t['views'][-1])}"
        for row in table.rows
        for seed, t in finished(table, row, out).items()
    ]


def main_table(table: Table, out: Path) -> list[str]:
    """Losses, weightings, ablations and baselines on one data set."""
    lines = [
        "| | seeds | ACC | NMI | ARI | purity | mean ACC of a view alone, before and after | s an epoch |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found = {row.name: list(trials.values()) for row in table.rows if (trials := finished(table, row, out))}
    if found:
        raw = next(iter(found.values()))[0]["raw"]
        for title, prefix in (
            ("K-Means-BSV, the best view raw", "best view "),
            ("K-means, all views raw", ""),
        ):
            scores = [raw[prefix + m] for m in MEASURES]
            shown = " | ".join(f"{100 * s['value']:.1f} ± {100 * s['deviation']:.1f}" for s in scores)
            lines.append(f"| {title} | | {shown} | | |")
    for name, trials in found.items():
        shown = " | ".join(cell([t[m] for t in trials]) for m in MEASURES)
        ends = [100 * np.mean([t["views"][i] for t in trials]) for i in (0, -1)]
        seconds = np.median([t["epoch_seconds"] for t in trials])
        lines.append(f"| {name} | {len(trials)} | {shown} | {ends[0]:.1f}, {ends[1]:.1f} | {seconds:.1f} |")
    return lines


def noise_table(out: Path) -> list[str]:
    """What a view of noise costs, on the digits."""
    lines = [
        "| | seeds | ACC without noise | ACC with noise | lost | last weight of a pair with noise, without |",
        "|---|---|---|---|---|---|",
    ]
    without, having = digits()
    for row in DIGIT_ROWS:
        clean, noisy = finished(without, row, out), finished(having, row, out)
        both = sorted(clean.keys() & noisy.keys())
        if not both:
            continue
        a, b = ([group[seed]["ACC"] for seed in both] for group in (clean, noisy))
        weights = np.mean([t["weights"][-1] for t in noisy.values()], axis=0)
        others = weights[:-1, :-1][~np.eye(len(weights) - 1, dtype=bool)].mean()
        lines.append(
            f"| {row.name} | {len(both)} | {cell(a)} | {cell(b)} | {cell(np.subtract(a, b))} | "
            f"{weights[-1, :-1].mean():.3f}, {others:.3f} |"
        )
    return lines


def draw(table: Table, out: Path, file: Path) -> None:
    """Each view's accuracy over the epochs, for InfoNCE alone and for SEM; nothing where neither was trained."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = [(row, list(finished(table, row, out).values())) for row in (ROWS[1], ROWS[0])]
    if not any(trials for _, trials in shown):
        return
    with rc_context({"svg.hashsalt": "mvcl"}):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (row, trials) in zip(panels, shown):
            axes.set_title(row.name, fontsize=10)
            axes.set_xlabel("epoch")
            axes.grid(alpha=0.3)
            if trials:
                values = np.mean([t["views"] for t in trials], axis=0)
                for v, column in enumerate(values.T):
                    marker = "osDv^P"[v % 6]
                    axes.plot(
                        trials[0]["epochs"], column, marker=marker, markersize=3.5, label=f"view {v + 1}"
                    )
        panels[0].set_ylabel("ACC of each view alone")
        if panels[1].lines:
            panels[1].legend(fontsize=8, ncols=2)
        figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
