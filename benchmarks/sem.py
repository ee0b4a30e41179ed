"""SEM over seeds: losses, weightings, ablations, the parts of the released training; and what a view of noise does.

    python -m benchmarks.sem --data handwritten.mat                    # or: make reproduce-sem DATA=handwritten.mat
    python -m benchmarks.sem --data handwritten.mat --rows "SEM, InfoNCE, CMI" "SEM as released"   # these rows
    python -m benchmarks.sem --data OTHER.mat --rounds 3               # another table, under its own name
    python -m benchmarks.sem --recipe configs/xu/sem.py:caltech --data Caltech.mat --rows "SEM, InfoNCE, CMI"
    python -m benchmarks.sem --digits                                  # the digits with and without noise; offline
    python -m benchmarks.sem --write                                   # also the tables and the picture of docs/sem.md

Each row and seed is one run of `training.train` in OUT/DATA/ROW/SEED; a second call continues what is unfinished. The
recipe says everything but the row: schedule, networks, batch, learning rate, scaling. DATA is the name of the file, and
a folder of that name for another file or another recipe is refused. The rows of a seed that have one reconstruction
share it: it is a run of its own, whose last checkpoint each row continues from. Measured is K-means on the embeddings
of all views side by side, the mean of 10 runs, and one run at each refresh.
"""

import argparse
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mvcl import data, evaluation, losses, methods, training
from mvcl.metrics import clustering_accuracy

DOCS = Path(__file__).parents[1] / "docs" / "sem.md"
OUT = Path("runs/sem")
RECIPES = Path(__file__).parents[1] / "configs" / "xu" / "sem.py"
HANDWRITTEN, DIGITS, NOISE = "handwritten", "digits_views", "digits_views and noise"
MEASURES = ("ACC", "NMI", "ARI", "purity")
PAIRS: dict[str, losses.Loss] = {
    "InfoNCE": partial(losses.nt_xent, temperature=1.0),
    "PSCL": losses.spectral,
    "RINCE": partial(losses.rince, temperature=0.5),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table: what it changes in the recipe. `method` has options of `methods.Sem`."""

    name: str
    pair: str = "InfoNCE"
    pairs: Literal["unordered", "ordered", "all"] = "all"
    method: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def reconstruction(self) -> str:
        """Name of the row whose reconstruction this one shares: those with the same options of it."""
        shared = {name: self.method[name] for name in _OF_RECONSTRUCTION if name in self.method}
        return ", ".join(["reconstruction", *(f"{name} {value}" for name, value in shared.items())])


# The options that change pre-training, its batches or the arrays of the state.
_OF_RECONSTRUCTION = (
    "sample_weights",
    "reconstruction",
    "as_released",
    "restart_optimizer",
    "last_batch",
    "uniform_biases",
)


# The most telling rows first: a run that is cut short has these.
ROWS = (
    Row("SEM, InfoNCE, CMI"),
    Row("InfoNCE without W and R", method={"weights": "none", "lam": 0.0}),
    Row("SEM as released", method={"as_released": True}),
    Row("SEM, optimiser restarts", method={"restart_optimizer": True}),
    Row("SEM, last batch", method={"last_batch": True}),
    Row("SEM, uniform biases", method={"uniform_biases": True}),
    Row("SEM, 100 K-means starts", method={"k_means_starts": 100}),
    Row("InfoNCE without R", method={"lam": 0.0}),
    Row("InfoNCE without W", method={"weights": "none"}),
    Row("CMC-style sum", pairs="unordered", method={"weights": "none", "lam": 0.0}),
    Row("SEM, InfoNCE, MMD", method={"weights": "mmd"}),
    Row("SEM, InfoNCE, JSD", method={"weights": "jsd"}),
    Row("SEM, PSCL, CMI", "PSCL"),
    Row("SEM, PSCL, MMD", "PSCL", method={"weights": "mmd"}),
    Row("SEM, PSCL, JSD", "PSCL", method={"weights": "jsd"}),
    Row("SEM, RINCE, CMI", "RINCE"),
    Row("SEM, RINCE, MMD", "RINCE", method={"weights": "mmd"}),
    Row("SEM, RINCE, JSD", "RINCE", method={"weights": "jsd"}),
    Row("SEM, InfoNCE, CMI, DAE", method={"reconstruction": "dae"}),
    Row("SEM, InfoNCE, CMI, MAE", method={"reconstruction": "mae"}),
    Row("SEM without pre-training", method={"pretrain_epochs": 0}),
    Row("SEM, InfoNCE, CMI, sample weights", method={"sample_weights": True}),
)
NAMED = {row.name: row for row in ROWS}
BOTH, PLAIN, WITHOUT_R = (
    NAMED["SEM, InfoNCE, CMI"],
    NAMED["InfoNCE without W and R"],
    NAMED["InfoNCE without R"],
)
DIGIT_ROWS = (PLAIN, WITHOUT_R, BOTH, NAMED["SEM, InfoNCE, CMI, sample weights"])


@dataclasses.dataclass(frozen=True)
class Table:
    """A data set with its recipe, and the rows that are trained on it."""

    name: str
    recipe: training.Config
    rows: tuple[Row, ...]


def config_of(table: Table, row: Row, seed: int) -> training.Config:
    """One run of a row."""
    method = sem_of(table.recipe)
    changed = dataclasses.replace(method, **row.method)
    rounds = table.recipe.train.epochs - method.pretrain_epochs
    return dataclasses.replace(
        table.recipe,
        objective=losses.all_pairs(PAIRS[row.pair], pairs=row.pairs, reduction="sum"),
        method=changed,
        train=dataclasses.replace(table.recipe.train, seed=seed, epochs=changed.pretrain_epochs + rounds),
    )


def sem_of(recipe: training.Config) -> methods.Sem:
    """The recipe's method.

    Raises:
      ValueError: it is another method.
    """
    method = recipe.method
    if not isinstance(method, methods.Sem):
        raise ValueError(f"--recipe must be a config of method sem, got {type(method).__name__}")
    return method


def trained(table: Table, row: Row, seed: int, out: Path) -> Path:
    """The folder of a row's finished run; it is trained, or continued, where it is not."""
    folder, config = place(out, table, row, seed), config_of(table, row, seed)
    pretrain = sem_of(config).pretrain_epochs
    if not folder.is_dir() and pretrain:
        kind = Row(
            row.reconstruction,
            method={name: row.method[name] for name in _OF_RECONSTRUCTION if name in row.method},
        )
        shared, first = place(out, table, kind, seed), config_of(table, kind, seed)
        quick = dataclasses.replace(table.recipe.evaluation, runs=1, starts=1)
        length = dataclasses.replace(first.train, epochs=pretrain)
        training.train(dataclasses.replace(first, train=length, evaluation=quick), shared)
        begun = folder.with_name(f".{folder.name}")
        shutil.rmtree(begun, ignore_errors=True)
        shutil.copytree(shared / "checkpoints", begun / "checkpoints")
        (begun / "config.json").write_text(training.to_json(training.prepare(config).config))
        begun.replace(folder)
    training.train(config, folder)
    return folder


def claim(table: Table, out: Path, file: Path | None) -> None:
    """Write what the folder of a table holds, or check that it is the same data and recipe.

    Raises:
      ValueError: the folder has runs of other data or of another recipe.
    """
    now = {
        "data": "" if file is None else _digest(file),
        "recipe": json.loads(training.to_json(table.recipe)),
    }
    now["recipe"]["data"].pop("path", None)  # the same file elsewhere is the same data
    path = out / table.name.replace(" ", "_") / "table.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(now))
        return
    before = json.loads(path.read_text())
    for name, what in (("data", "other data"), ("recipe", "another recipe")):
        if before[name] != now[name]:
            raise ValueError(f"{path.parent} has runs of {what} of that name; choose another --out")


def _digest(path: Path) -> str:
    """Of a file, or of the names and contents of a folder's files."""
    found = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            found.update(file.name.encode())
            found.update(file.read_bytes())
    return found.hexdigest()


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
    # One run of K-means at each refresh; the last, after the rounds, is replaced by the mean of 10.
    before = [look for look in looks if look["step"] < saved["step"]]
    curve = [
        [clustering_accuracy(labels, np.asarray(clusters)) for clusters in look["clusters"]]
        for look in before
    ]
    return {
        **{measure: mine[measure]["value"] for measure in MEASURES},
        "raw": scores["raw input"],
        "epochs": [round(look["step"] / per_epoch) for look in before] + [round(saved["step"] / per_epoch)],
        "views": [*curve, [mine[name]["value"] for name in views]],
        "weights": [look["weights"] for look in before if "weights" in look],
        "rounds": [(look["acc_all"], look["nmi_all"]) for look in looks if "weights" in look],
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
    parser.add_argument("--data", type=Path, help="a table; the folder of its runs has its name")
    parser.add_argument(
        "--recipe", default=f"{RECIPES}:tables", help="FILE.py:VARIANT of method sem, for --data"
    )
    parser.add_argument("--rounds", type=int, help="rounds of the recipe's update_epochs; its own by default")
    parser.add_argument("--digits", action="store_true", help="the digits, with and without noise")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument(
        "--rows", nargs="+", action="extend", default=[], metavar="NAME", help="only the rows of these names"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the tables and the picture of docs/sem.md"
    )
    arguments = parser.parse_args()
    if not arguments.data and not arguments.digits and not arguments.write:
        parser.error("--data names a table; --digits needs none")
    training.compilation_cache()
    chosen: list[tuple[Table, Path | None]] = []
    if arguments.data:
        chosen.append((table_of(arguments.recipe, arguments.data, arguments.rounds), arguments.data))
    chosen += [(table, None) for table in digits()] if arguments.digits else []
    try:
        rows = named(arguments.rows, [table for table, _ in chosen])
        for table, file in chosen:
            claim(table, arguments.out, file)
    except ValueError as error:
        parser.error(str(error))
    run_all([table for table, _ in chosen], rows, arguments.seeds, arguments.out)
    if arguments.write:
        write(arguments.out, DOCS)


def named(names: Sequence[str], tables: Sequence[Table]) -> list[str]:
    """The names of the rows to train: those given, or all of the tables.

    Raises:
      ValueError: no table has a row of that name.
    """
    there = list(dict.fromkeys(row.name for table in tables for row in table.rows))
    for name in names:
        if name not in there:
            raise ValueError(f"--rows: there is no row {name!r}; there are {', '.join(map(repr, there))}")
    return list(names) or there


def run_all(tables: Sequence[Table], rows: Sequence[str], seeds: Sequence[int], out: Path) -> None:
    """Train the rows of these names, and print the tables; each is saved beside its runs too."""
    runs = [
        (table, row, seed) for table in tables for row in table.rows if row.name in rows for seed in seeds
    ]
    for number, (table, row, seed) in enumerate(runs, 1):
        print(f"{table.name}, run {number} of {len(runs)}: {row.name}, seed {seed}", flush=True)
        trained(table, row, seed, out)
    for table in tables:
        lines = [
            table.name,
            "",
            *main_table(table, out),
            "",
            *rounds_table(table, out),
            "",
            *by_seed(table, out),
        ]
        print("", *lines, sep="\n")
        (out / table.name.replace(" ", "_") / "table.md").write_text("\n".join(lines) + "\n")


def table_of(recipe: str, file: Path, rounds: int | None) -> Table:
    """The table of a file: a recipe on its data, measured without the SVM."""
    config = training.load(recipe)
    method = sem_of(config)
    if rounds is not None:
        length = method.pretrain_epochs + rounds * method.update_epochs
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=length))
    source: Any = config.data
    return Table(file.stem, measured(config, dataclasses.replace(source, path=str(file))), ROWS)


def measured(config: training.Config, source: data.Source) -> training.Config:
    """The recipe on these data, without the SVM and with the clusters recorded every 10 epochs at least."""
    method, protocol = sem_of(config), evaluation.Clustering(features="head", svm_share=0)
    often = dataclasses.replace(method, watch_epochs=min(method.watch_epochs or 10, 10))
    return dataclasses.replace(config, data=source, method=often, evaluation=protocol)


def digits() -> list[Table]:
    """The digits without and with noise."""
    recipe = training.load(f"{RECIPES}:digits_views")
    return [
        Table(DIGITS, measured(recipe, data.DigitsViews()), DIGIT_ROWS),
        Table(NOISE, measured(recipe, data.DigitsViews(noise=True)), DIGIT_ROWS),
    ]


def cell(values: Any) -> str:
    """Mean and deviation over seeds, in percent."""
    spread = f" ± {100 * float(np.std(values, ddof=1)):.1f}" if len(values) > 1 else ""
    return f"{100 * float(np.mean(values)):.1f}{spread}"


def write(out: Path, page: Path) -> None:
    """The tables between the marks of docs/sem.md, and the picture beside it, of the runs that there are."""
    text, table = page.read_text(), Table(HANDWRITTEN, training.load(f"{RECIPES}:handwritten"), ROWS)
    for mark, lines in (
        ("handwritten", main_table(table, out)),
        ("rounds", rounds_table(table, out)),
        ("noise", noise_table(out)),
    ):
        if len(lines) > 2:
            before, rest = text.split(f"<!-- {mark} -->\n", 1)
            after = rest.split(f"<!-- end {mark} -->", 1)[1]
            text = f"{before}<!-- {mark} -->\n" + "\n".join(lines) + f"\n<!-- end {mark} -->{after}"
    page.write_text(text)
    draw(table, out, page.with_suffix(".svg"))


def rounds_table(table: Table, out: Path) -> list[str]:
    """ACC and NMI of all views after the reconstruction and after each round, by one K-means run at each."""
    found = {row.name: list(trials.values()) for row in table.rows if (trials := finished(table, row, out))}
    last = max((len(t["rounds"]) for trials in found.values() for t in trials), default=0)
    heads = ["reconstruction alone", *(f"after round {r}" for r in range(1, last))]
    lines = [
        "| | seeds | " + " | ".join(f"{head}, ACC, NMI" for head in heads) + " |",
        "|---|---|" + "---|" * len(heads),
    ]
    for name, trials in found.items():
        values = np.asarray([t["rounds"] for t in trials])  # (seeds, rounds + 1, 2)
        shown = [f"{cell(values[:, r, 0])}, {cell(values[:, r, 1])}" for r in range(values.shape[1])]
        lines.append(f"| {name} | {len(trials)} | " + " | ".join(shown) + " |")
    return lines


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

    shown = [(row, list(finished(table, row, out).values())) for row in (PLAIN, BOTH)]
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
