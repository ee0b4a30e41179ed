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
    plots = []
    for key, title, label in CURVES:
        lines = [series(log, key) for log in logs]
        ends = [
            f"{name} {value:.4g}" for name, line in zip(names, lines) if (value := last(line)) is not None
        ]
        if not ends:
            continue
        chance = [series(log, "chance") for log in logs] if key == "loss" else []
        levels = [value for line in chance if (value := last(line)) is not None]
        note = "last value " + (", ".join(ends) if len(logs) > 1 else ends[0].removeprefix(f"{names[0]} "))
        if levels:
            note += "; dashed: chance level" + (f" {levels[0]:.4g}" if len(logs) == 1 else "")
        for name, line in zip(names, lines):
            for step in line.index[line.isna()][:1]:
                note += f"; not finite{f' in {name}' if len(logs) > 1 else ''} at step {step:.0f}"
        alt = f"{title} over training steps; {note}"
        frames = [line.to_frame("value") for line in lines]
        plots.append(
            (_figures.curves(frames, label, alt, names, dashed=chance if levels else ()), title, note)
        )
    return plots


def series(log: pd.DataFrame, key: str) -> pd.Series:
    """An entry of the log by step; NaN where it is not finite."""
    if key not in log:
        return pd.Series(dtype=float)
    found = log[key].dropna()
    return found.where(np.isfinite(found))


def last(of: pd.Series) -> float | None:
    """The last finite value."""
    finite = of.dropna()
    return float(finite.iloc[-1]) if len(finite) else None


def of_seeds(logs: Sequence[Sequence[pd.DataFrame]], names: Sequence[str]) -> list[Plot]:
    """A plot of each number in the logs of the seeds of several configurations, over epochs where all have them."""
    epochs = all("epoch" in log and last(_epochs_per_step(log)) for seeds in logs for log in seeds)
    if epochs:
        logs = [
            [log.set_axis(log.index * last(_epochs_per_step(log)), axis=0) for log in seeds] for seeds in logs
        ]
    horizontal = "epoch" if epochs else "step"
    plots = []
    for key, title, label in CURVES:
        if key in _NOT_OF_SEEDS:
            continue
        drawn = [band([series(log, key) for log in seeds], horizontal) for seeds in logs]
        ends = [float(one["value"].iloc[-1]) for one in drawn if len(one)]
        if not ends:
            continue
        note = (
            f"{len(ends)} of {len(logs)} configurations; last values from {min(ends):.4g} to {max(ends):.4g}"
        )
        alt = f"{title} over the {horizontal}s of training, mean over seeds; {note}"
        plots.append((_figures.curves(drawn, label, alt, names), title, note))
    return plots


def _epochs_per_step(log: pd.DataFrame) -> pd.Series:
    return series(log, "epoch")[lambda of: of.index > 0].pipe(lambda of: of / of.index)


def band(seeds: Sequence[pd.Series], horizontal: str) -> pd.DataFrame:
    """Mean over the seeds that have a point, and the 95 % interval of the mean; NaN for one seed."""
    table = pd.concat([of.set_axis(of.index.astype(float).round(9)) for of in seeds], axis=1).sort_index()
    table = table.dropna(how="all")
    if len(table) > _POINTS:
        table = table.iloc[np.unique(np.linspace(0, len(table) - 1, _POINTS).astype(int))]
    rows = [metrics.interval(row.dropna()) for _, row in table.iterrows()]
    frame = pd.DataFrame(
        [(i.mean, i.low, i.high) for i in rows], table.index, ["value", "low", "high"], float
    )
    frame[["low", "high"]] = frame[["low", "high"]].where(np.isfinite(frame[["low", "high"]]))
    return frame.rename_axis(horizontal)
