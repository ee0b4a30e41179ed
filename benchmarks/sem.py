"""SEM on handwritten.mat: losses, weightings, ablations and baselines; and what a view of noise does. Over seeds.

    python -m benchmarks.sem --data handwritten.mat                    # or: make reproduce-sem DATA=handwritten.mat
    python -m benchmarks.sem --data handwritten.mat --rows "InfoNCE"   # rows whose names contain a word
    python -m benchmarks.sem --digits                                  # the digits with and without noise; offline
    python -m benchmarks.sem --write                                   # only docs/sem.md, its picture, and each seed

100 epochs of reconstruction, which all rows of a seed share, then 2 rounds of 50. Each finished trial is a line of
`--records`; a second call does those that are missing, one row after the other. Batches of 256 in an order drawn
from the seed, Adam 3e-4, temperature 1.0, the inputs in [0, 1] column by column. What counts is the mean over seeds
of K-means on the embeddings of all views side by side, 10 runs each.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvcl import data, methods, models, training
from mvcl.evaluation import Clustering, cluster_scores
from mvcl.metrics import clustering_accuracy

DOCS = Path(__file__).parents[1] / "docs" / "sem.md"
PRETRAIN, ROUNDS, EPOCHS, BATCH, RATE, WATCH = 100, 2, 50, 256, 3e-4, 10
LAST = PRETRAIN + ROUNDS * EPOCHS
PAIRS: dict[str, tuple[str, dict[str, float]]] = {
    "InfoNCE": ("nt_xent", {"temperature": 1.0}),
    "PSCL": ("spectral", {}),
    "RINCE": ("rince", {"temperature": 0.5}),
}
HANDWRITTEN, DIGITS, NOISE = "handwritten", "digits_views", "digits_views and noise"
SMALL: dict[str, Any] = {
    "hidden": (256, 256, 512),
    "features": 128,
    "embedding": 64,
}  # configs/xu/sem.py:digits_views
MEASURES = ("ACC", "NMI", "ARI", "purity")


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table: what is compared, with what weights and how much reconstruction."""

    name: str
    pair: str = "InfoNCE"
    weights: str = "cmi"
    lam: float = 1.0
    pairs: str = "all"
    sample_weights: bool = False

    def method(self, sizes: dict[str, Any]) -> methods.Sem:
        """The method."""
        return methods.Sem(
            weights=self.weights,  # type: ignore[arg-type]
            sample_weights=self.sample_weights,
            lam=self.lam,
            pretrain_epochs=PRETRAIN,
            update_epochs=EPOCHS,
            watch_epochs=WATCH,
            **sizes,
        )

    def objective(self) -> methods.Objective:
        """The objective."""
        name, options = PAIRS[self.pair]
        pair = methods.PAIR_OBJECTIVES[name](**options)
        return methods.OBJECTIVES["all_pairs"](pairs=self.pairs, reduction="sum", pair=pair)


# The most telling rows first: a run that is cut short has these.
ROWS = (
    Row("SEM, InfoNCE, CMI"),
    Row("InfoNCE without W and R", weights="none", lam=0.0),
    Row("InfoNCE without R", lam=0.0),
    Row("InfoNCE without W", weights="none"),
    Row("CMC-style sum", weights="none", lam=0.0, pairs="unordered"),
    Row("SEM, InfoNCE, MMD", weights="mmd"),
    Row("SEM, InfoNCE, JSD", weights="jsd"),
    *(Row(f"SEM, {p}, {w.upper()}", p, w) for p in ("PSCL", "RINCE") for w in ("cmi", "mmd", "jsd")),
    Row("SEM, InfoNCE, CMI, sample weights", sample_weights=True),
)
DIGIT_ROWS = (ROWS[1], ROWS[2], ROWS[0], ROWS[-1])


class Trainer:
    """One table, and the jitted steps of the rows that have been asked for."""

    def __init__(self, name: str, split: data.ViewSplit, sizes: dict[str, Any]) -> None:
        self.name, self.split, self.sizes = name, split, sizes
        self.rule = optax.adam(RATE)
        self.views = tuple(jnp.asarray(view) for view in split.views or ())
        self.steps_per_epoch = len(split) // BATCH
        self.classes = len(split.class_names)
        self.programs: dict[Row, Any] = {}

    def learner(self, row: Row) -> methods.Learner:
        """The row's method on this table."""
        setting = methods.Setting(
            encoder=models.MLP(),
            head=models.HEADS["none"](),
            objective=row.objective(),
            shapes=self.split.shapes,
            given=True,
            examples=len(self.split),
            classes=self.classes,
            dtype=jnp.float32,
        )
        return row.method(self.sizes).build(setting)

    def program(self, row: Row) -> Any:
        """(parameters, statistics, optimiser state, rows, epoch) -> (parameters, optimiser state, loss), a step.

        W is data, so that rows that differ in nothing else share a program.
        """
        key = dataclasses.replace(row, name="", weights="cmi")
        if key not in self.programs:
            learner, objective = self.learner(row), row.objective()

            @partial(jax.jit, donate_argnums=(0, 2))
            def step(params: Any, statistics: Any, opt: Any, index: jax.Array, epoch: jax.Array) -> Any:
                inputs = {"views": tuple(v[index] for v in self.views), "index": index, "epoch": epoch[None]}

                def loss(params: Any) -> tuple[jax.Array, Any]:
                    return learner.loss(params, statistics, inputs, lambda x: x["views"], objective.measured)

                (value, _), gradient = jax.value_and_grad(loss, has_aux=True)(params)
                updates, opt = self.rule.update(gradient, opt, params)
                return optax.apply_updates(params, updates), opt, value

            self.programs[key] = step
        return self.programs[key]

    def train(
        self, row: Row, seed: int, state: Any, first_epoch: int, epochs: int
    ) -> tuple[Any, list[dict[str, Any]], float]:
        """The state after so many epochs, what was seen on the way, and the seconds of an epoch."""
        learner, step = self.learner(row), self.program(row)
        assert learner.refresh is not None
        params, statistics, opt = state
        per = self.steps_per_epoch
        records, seconds = [], []
        for epoch in range(first_epoch, first_epoch + epochs):
            if epoch >= PRETRAIN and learner.refresh.due(epoch * per, per):
                statistics, record = self.look(learner, params, statistics, epoch)
                records.append(record)
            order = np.random.default_rng((seed, epoch)).permutation(len(self.split))
            start = time.perf_counter()
            for i in range(per):
                index = jnp.asarray(order[i * BATCH : (i + 1) * BATCH], jnp.int32)
                params, opt, loss = step(params, statistics, opt, index, jnp.int32(epoch))
            if not np.isfinite(float(loss)):
                raise FloatingPointError(
                    f"{row.name}, seed {seed}: the loss is {float(loss)} in epoch {epoch}"
                )
            seconds.append(time.perf_counter() - start)
            if epoch % 10 == 9:
                print(
                    f"  {row.name}, seed {seed}: epoch {epoch + 1} of {LAST}, {np.median(seconds):.1f} s each",
                    flush=True,
                )
        return (params, statistics, opt), records, float(np.median(seconds))

    def look(
        self, learner: methods.Learner, params: Any, statistics: Any, epoch: int
    ) -> tuple[Any, dict[str, Any]]:
        """A refresh, and each view's accuracy in place of its clusters."""
        assert learner.refresh is not None
        per = self.steps_per_epoch
        statistics, seen = learner.refresh.compute(
            params, statistics, self.split.views, None, epoch * per, per
        )
        record = {"epoch": epoch}
        if "weights" in seen:
            record["weights"] = [[round(float(w), 4) for w in row] for row in seen["weights"]]
        record["views"] = [round(clustering_accuracy(self.split.labels, c), 4) for c in seen["clusters"]]
        return statistics, record

    def pretrained(self, seed: int, folder: Path) -> tuple[Any, float]:
        """The state after the reconstruction, kept on disk for the seed's other rows, and the seconds of an epoch."""
        row = Row("reconstruction")
        params, statistics = self.learner(row).init(jax.random.key(seed))
        opt = self.rule.init(params)
        leaves, tree = jax.tree.flatten((params, opt))
        file = folder / f"{self.name.replace(' ', '_')}_{seed}.npz"
        if not file.is_file():
            state, _, seconds = self.train(row, seed, (params, statistics, opt), 0, PRETRAIN)
            arrays = {str(i): np.asarray(x) for i, x in enumerate(jax.tree.leaves((state[0], state[2])))}
            unfinished = folder / f".{file.name}"
            np.savez(unfinished, seconds=seconds, **arrays)  # type: ignore[arg-type]
            unfinished.replace(file)
        with np.load(file) as saved:
            params, opt = jax.tree.unflatten(tree, [jnp.asarray(saved[str(i)]) for i in range(len(leaves))])
            return (params, statistics, opt), float(saved["seconds"])

    def trial(self, row: Row, seed: int, folder: Path) -> dict[str, Any]:
        """One run of a row, measured."""
        (params, _, opt), before = self.pretrained(seed, folder)
        learner = self.learner(row)
        _, statistics = learner.init(jax.random.key(seed))
        state, records, seconds = self.train(row, seed, (params, statistics, opt), PRETRAIN, LAST - PRETRAIN)
        _, last = self.look(learner, state[0], state[1], LAST)
        last.pop("weights", None)  # of a round that does not come
        features = jax.jit(learner.features, static_argnums=3)
        found = features(state[0], state[1], {"views": self.split.views}, "head")
        scores = cluster_scores(np.asarray(found), self.split.labels, self.classes)
        return {
            "data": self.name,
            "row": row.name,
            "seed": seed,
            "epoch_seconds": round(seconds, 2),
            "pretrain_epoch_seconds": round(before, 2),
            **{name: round(float(values.mean()), 4) for name, values in scores.items()},
            "records": [*records, last],
        }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="handwritten.mat")
    parser.add_argument("--digits", action="store_true", help="the digits, with and without noise")
    parser.add_argument("--records", type=Path, default=Path("runs/sem/trials.jsonl"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument(
        "--write", action="store_true", help="write the page from the records, and train nothing"
    )
    arguments = parser.parse_args()
    file = arguments.records
    file.parent.mkdir(parents=True, exist_ok=True)
    if not arguments.write:
        if not arguments.data and not arguments.digits:
            parser.error("--data names handwritten.mat; --digits needs none")
        training.compilation_cache()
        tables: dict[str, tuple[Any, dict[str, Any]]] = {}
        if arguments.data:
            tables[HANDWRITTEN] = (data.Tables(path=arguments.data), {})
        if arguments.digits:
            tables |= {DIGITS: (data.DigitsViews(), SMALL), NOISE: (data.DigitsViews(noise=True), SMALL)}
        for name, (source, sizes) in tables.items():
            split = source.open()["train"]
            rows = [
                row for row in (ROWS if name == HANDWRITTEN else DIGIT_ROWS) if arguments.rows in row.name
            ]
            baseline(name, split, file)
            run(Trainer(name, split, sizes), rows, arguments.seeds, file)
    write(file, DOCS)


def run(trainer: Trainer, rows: Sequence[Row], seeds: Sequence[int], file: Path) -> None:
    """The trials that the records lack."""
    done = {(r["data"], r["row"], r.get("seed")) for r in read(file)}
    missing = [(row, seed) for row in rows for seed in seeds if (trainer.name, row.name, seed) not in done]
    for number, (row, seed) in enumerate(missing, 1):
        print(f"{trainer.name}, trial {number} of {len(missing)}: {row.name}, seed {seed}", flush=True)
        record = trainer.trial(row, seed, file.parent)
        append(file, record)
        print(f"  ACC {record['ACC']:.3f}, NMI {record['NMI']:.3f}", flush=True)


def baseline(name: str, split: data.ViewSplit, file: Path) -> None:
    """K-means on the table itself: the best view alone (K-Means-BSV), and all views side by side."""
    if of(read(file), name, "raw"):
        return
    assert split.views is not None
    results = Clustering(svm_share=0).measure(
        {"train": np.concatenate(split.views, axis=1)}, {"train": split}
    )
    append(file, {"data": name, "row": "raw", "results": [dataclasses.asdict(r) for r in results]})


def append(file: Path, record: dict[str, Any]) -> None:
    """One more line."""
    with file.open("a") as out:
        out.write(json.dumps(record) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """The finished trials."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def of(trials: Sequence[dict[str, Any]], name: str, row: str) -> list[dict[str, Any]]:
    """The trials of one row on one table."""
    return [t for t in trials if (t["data"], t["row"]) == (name, row)]


def cell(values: Any) -> str:
    """Mean and deviation over seeds, in percent."""
    spread = f" ± {100 * float(np.std(values, ddof=1)):.1f}" if len(values) > 1 else ""
    return f"{100 * float(np.mean(values)):.1f}{spread}"


def write(file: Path, page: Path) -> None:
    """The tables between the marks of docs/sem.md, and the picture beside it."""
    trials = read(file)
    text = page.read_text()
    for mark, table in (("handwritten", main_table(trials)), ("noise", noise_table(trials))):
        before, rest = text.split(f"<!-- {mark} -->\n", 1)
        after = rest.split(f"<!-- end {mark} -->", 1)[1]
        text = f"{before}<!-- {mark} -->\n" + "\n".join(table) + f"\n<!-- end {mark} -->{after}"
    page.write_text(text)
    draw(trials, page.with_suffix(".svg"))
    print(*by_seed(trials), sep="\n")


def by_seed(trials: Sequence[dict[str, Any]]) -> list[str]:
    """A line a trial, in percent: its ACC, and that of each view alone before and after the rounds."""

    def percent(values: Sequence[float]) -> str:
        return " ".join(f"{100 * value:.1f}" for value in values)

    runs = sorted((t for t in trials if "seed" in t), key=lambda t: (t["data"], t["row"], t["seed"]))
    return [
        f"{t['data']}, {t['row']}, seed {t['seed']}: ACC {percent([t['ACC']])}; "
        f"views {percent(t['records'][0]['views'])} -> {percent(t['records'][-1]['views'])}"
        for t in runs
    ]


def main_table(trials: Sequence[dict[str, Any]]) -> list[str]:
    """Losses, weightings, ablations and baselines on handwritten.mat."""
    lines = [
        "| | seeds | ACC | NMI | ARI | purity | mean ACC of a view alone, before and after | s an epoch |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for raw in of(trials, HANDWRITTEN, "raw"):
        results = {r["name"]: r for r in raw["results"]}
        for title, prefix in (
            ("K-Means-BSV, the best view raw", "best view "),
            ("K-means, all views raw", ""),
        ):
            scores = [results[prefix + m] for m in MEASURES]
            shown = " | ".join(f"{100 * s['value']:.1f} ± {100 * s['deviation']:.1f}" for s in scores)
            lines.append(f"| {title} | | {shown} | | |")
    for row in ROWS:
        if found := of(trials, HANDWRITTEN, row.name):
            scores = " | ".join(cell([t[m] for t in found]) for m in MEASURES)
            ends = [100 * np.mean([t["records"][i]["views"] for t in found]) for i in (0, -1)]
            seconds = np.median([t["epoch_seconds"] for t in found])
            lines.append(
                f"| {row.name} | {len(found)} | {scores} | {ends[0]:.1f}, {ends[1]:.1f} | {seconds:.1f} |"
            )
    return lines


def noise_table(trials: Sequence[dict[str, Any]]) -> list[str]:
    """What a view of noise costs, on the digits."""
    lines = [
        "| | seeds | ACC without noise | ACC with noise | lost | last weight of a pair with noise, without |",
        "|---|---|---|---|---|---|",
    ]
    for row in DIGIT_ROWS:
        clean, noisy = of(trials, DIGITS, row.name), of(trials, NOISE, row.name)
        both = sorted({t["seed"] for t in clean} & {t["seed"] for t in noisy})
        if not both:
            continue
        a, b = ([next(t["ACC"] for t in group if t["seed"] == s) for s in both] for group in (clean, noisy))
        weights = np.mean(
            [next(r["weights"] for r in reversed(t["records"]) if "weights" in r) for t in noisy], axis=0
        )
        others = weights[:-1, :-1][~np.eye(len(weights) - 1, dtype=bool)].mean()
        lines.append(
            f"| {row.name} | {len(both)} | {cell(a)} | {cell(b)} | {cell(np.subtract(a, b))} | "
            f"{weights[-1, :-1].mean():.3f}, {others:.3f} |"
        )
    return lines


def draw(trials: Sequence[dict[str, Any]], file: Path) -> None:
    """Each view's accuracy over the epochs, for InfoNCE alone and for SEM."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "mvcl"}):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, name in zip(panels, (ROWS[1].name, ROWS[0].name)):
            axes.set_title(name, fontsize=10)
            axes.set_xlabel("epoch")
            axes.grid(alpha=0.3)
            if found := of(trials, HANDWRITTEN, name):
                epochs = [r["epoch"] for r in found[0]["records"]]
                values = np.mean([[r["views"] for r in t["records"]] for t in found], axis=0)
                for v, column in enumerate(values.T):
                    axes.plot(epochs, column, marker="osDv^P"[v % 6], markersize=3.5, label=f"view {v + 1}")
        panels[0].set_ylabel("ACC of each view alone")
        if panels[1].lines:
            panels[1].legend(fontsize=8, ncols=2)
        figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
