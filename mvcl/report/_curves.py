"""Curves over training: a line for each run, or the mean over seeds with its interval."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from mvcl import metrics
from mvcl.report import _figures
from mvcl.report._read import Run, Scalars

CURVES = (
    ("loss", "Loss", "loss"),
    ("knn", "k-NN accuracy", "accuracy"),
    ("recall_at_1", "Recall at 1 of a view by another", "recall"),
    ("acc_all", "Clustering accuracy, all views", "ACC"),
    ("nmi_all", "Normalised mutual information, all views", "NMI"),
    ("effective_rank", "Effective rank", "dimensions"),
    ("learning_rate", "Learning rate", "learning rate"),
    ("views_per_second", "Throughput", "views per second"),
    ("gradient_norm", "Gradient norm", "norm"),
    ("resultant", "Resultant length R of the groups of views", "R"),
    ("concentration", "Concentration κ of the groups of views", "κ"),
    ("positive_similarity", "Similarity of positives, s+", "similarity"),
    ("negative_similarity", "Mean similarity of negatives, s-", "similarity"),
    *(
        (f"{output}_{key}", f"{title}, {output}", label)
        for key, title, label in (
            ("alignment", "Alignment of the views", "mean squared distance"),
            ("uniformity", "Uniformity of each view", "log mean exp(-2 distance²)"),
            ("effective_rank", "Effective rank of the views", "dimensions"),
            ("positive_cosine", "Cosine of positives", "cosine"),
            ("negative_cosine", "Cosine of negatives", "cosine"),
        )
        for output in ("encoder", "head")
    ),
)
_POINTS = 120  # of a curve over seeds
# Not of the result: of the machine, or of the optimiser.
_NOT_SHOWN = ("learning_rate", "views_per_second", "gradient_norm")


def of_runs(runs: Sequence[Run], names: Sequence[str]) -> list[tuple[Markup, str, str]]:
    """(plot, title, note) of each number in the logs of the runs, a line for each run."""
    figures = []
    for key, title, label in CURVES:
        drawn = [series(run, key) for run in runs]
        if not any(np.isfinite(values).any() for _, values in drawn):
            continue
        dashed = [series(run, "chance") for run in runs] if key == "loss" else []
        dashed = dashed if any(np.isfinite(values).any() for _, values in dashed) else []
        ends = [
            f"{name} {values[np.isfinite(values)][-1]:.4g}"
            for name, (_, values) in zip(names, drawn)
            if np.isfinite(values).any()
        ]
        note = "last value " + (ends[0].removeprefix(names[0] + " ") if len(runs) == 1 else ", ".join(ends))
        if dashed:
            note += "; dashed: chance level"
            chance = dashed[0][1][np.isfinite(dashed[0][1])]
            note += f" {chance[-1]:.4g}" if len(runs) == 1 else ""
        for name, (steps, values) in zip(names, drawn):
            bad = steps[~np.isfinite(values)]
            if len(bad):
                note += f"; not finite{'' if len(runs) == 1 else ' in ' + name} at step {bad[0]:.0f}"
        plot = _figures.curves(drawn, dashed, label, f"{title} over training steps; {note}", names)
        figures.append((plot, title, note))
    return figures


def series(run: Run, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of an entry of the log; NaN where it is not finite."""
    found = [(step, values[key]) for step, values in run.scalars.items() if key in values]
    steps, values = np.array(found, float).reshape(-1, 2).T
    return steps, np.where(np.isfinite(values), values, np.nan)


def last(run: Run, key: str) -> float | None:
    """The last finite value."""
    _, values = series(run, key)
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else None


def of_seeds(
    logs: Sequence[Sequence[Scalars]], whole: str, names: Sequence[str] = ()
) -> list[tuple[Markup, str, str]]:
    """(plot, title, note) of each number in the logs of the seeds of several configurations; `whole` is their noun."""
    rates = [_epochs_per_step(log) for seeds in logs for log in seeds]
    epochs = bool(rates) and all(rate > 0 for rate in rates)
    horizontal = "epoch" if epochs else "step"
    plots = []
    for key, title, label in CURVES:
        if key in _NOT_SHOWN:
            continue
        drawn = [band([_at_places(log, key, epochs) for log in seeds]) for seeds in logs]
        there = [one for one in drawn if len(one[0])]
        if not there:
            continue
        ends = [float(one[1][-1]) for one in there]
        note = f"{len(there)} of {len(logs)} {whole}; last values from {min(ends):.4g} to {max(ends):.4g}"
        alt = f"{title} over the {horizontal}s of training, mean over seeds; {note}"
        plots.append((_figures.bands(drawn, horizontal, label, alt, names), title, note))
    return plots


def _epochs_per_step(log: Scalars) -> float:
    """0 if the log has no epochs."""
    rates = [row["epoch"] / step for step, row in log.items() if step and "epoch" in row]
    return rates[-1] if rates and np.isfinite(rates[-1]) else 0.0


def _at_places(log: Scalars, key: str, epochs: bool) -> dict[float, float]:
    """Step or epoch -> value."""
    scale = _epochs_per_step(log) if epochs else 1.0
    return {
        round(step * scale, 9): row[key] for step, row in log.items() if key in row and np.isfinite(row[key])
    }


def band(seeds: Sequence[Mapping[float, float]]) -> _figures.Band:
    """Mean over the seeds that have a point, and the 95 % interval of the mean; NaN for one seed."""
    places = sorted({x for seed in seeds for x in seed})
    if len(places) > _POINTS:
        places = [places[i] for i in np.unique(np.linspace(0, len(places) - 1, _POINTS).astype(int))]
    columns = [np.array([seed[x] for seed in seeds if x in seed]) for x in places]
    of = [metrics.interval(column) for column in columns]
    ends = np.array([(i.low, i.high) if i.seeds > 1 else (np.nan, np.nan) for i in of]).reshape(-1, 2).T
    return np.array(places), np.array([i.mean for i in of]), *ends
