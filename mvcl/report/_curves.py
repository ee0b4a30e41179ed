"""Curves over training: a line for each run, or the mean over seeds with its interval."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup

from mvcl import metrics
from mvcl.report import _figures

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
_NOT_OF_SEEDS = ("learning_rate", "views_per_second", "gradient_norm")

Plot = tuple[Markup, str, str]  # with its title and note


def of_runs(logs: Sequence[pd.DataFrame], names: Sequence[str]) -> list[Plot]:
    """A plot of each number in the logs of the runs, a line for each run."""
    plots, several = [], len(logs) > 1
    for key, title, label in CURVES:
        lines = [series(log, key) for log in logs]
        ends = [(name, value) for name, line in zip(names, lines) if (value := last(line)) is not None]
        if not ends:
            continue
        chance = [series(log, "chance") for log in logs] if key == "loss" else []
        levels = [value for line in chance if (value := last(line)) is not None]
        note = "last value " + ", ".join(f"{name} {x:.4g}" if several else f"{x:.4g}" for name, x in ends)
        if levels:
            note += "; dashed: chance level" + ("" if several else f" {levels[0]:.4g}")
        for name, line in zip(names, lines):
            for step in line.index[line.isna()][:1]:
                note += f"; not finite{f' in {name}' if several else ''} at step {step:.0f}"
        alt = f"{title} over training steps; {note}"
        frames = [line.to_frame("value") for line in lines]
        plot = _figures.curves(frames, label, alt, names, dashed=chance if levels else ())
        plots.append((plot, title, note))
    return plots


def of_seeds(logs: Sequence[Sequence[pd.DataFrame]], names: Sequence[str]) -> list[Plot]:
    """A plot of each number in the logs of the seeds of several configurations, over epochs where all have them."""
    rates = [[last(series(log, "epoch") / series(log, "epoch").index) or 0.0 for log in of] for of in logs]
    horizontal = "epoch" if all(rate > 0 for of in rates for rate in of) else "step"
    if horizontal == "epoch":
        logs = [[log.set_axis(log.index * r) for log, r in zip(*pairs)] for pairs in zip(logs, rates)]
    plots = []
    for key, title, label in CURVES:
        bands = [band([series(log, key) for log in of], horizontal) for of in logs]
        ends = [float(of["value"].iloc[-1]) for of in bands if len(of)]
        if not ends or key in _NOT_OF_SEEDS:
            continue
        note = (
            f"{len(ends)} of {len(logs)} configurations; last values from {min(ends):.4g} to {max(ends):.4g}"
        )
        alt = f"{title} over the {horizontal}s of training, mean over seeds; {note}"
        plots.append((_figures.curves(bands, label, alt, names), title, note))
    return plots


def series(log: pd.DataFrame, key: str) -> pd.Series:
    """An entry of the log by step; NaN where it is not finite."""
    found = log[key].dropna() if key in log else pd.Series(dtype=float, index=pd.Index([], dtype=float))
    return found.where(np.isfinite(found))


def last(of: pd.Series) -> float | None:
    """The last finite value."""
    finite = of.dropna()
    return float(finite.iloc[-1]) if len(finite) else None


def band(seeds: Sequence[pd.Series], horizontal: str) -> pd.DataFrame:
    """Mean over the seeds that have a point, and the 95 % interval of the mean; NaN for one seed."""
    table = pd.concat([of.set_axis(of.index.astype(float).round(9)) for of in seeds], axis=1)
    table = table.sort_index().dropna(how="all")
    if len(table) > _POINTS:
        table = table.iloc[np.unique(np.linspace(0, len(table) - 1, _POINTS).astype(int))]
    intervals = [metrics.interval(row.dropna())[:3] for _, row in table.iterrows()]
    frame = pd.DataFrame(intervals, table.index, ["value", "low", "high"], float)
    return frame.where(np.isfinite(frame)).rename_axis(horizontal)
