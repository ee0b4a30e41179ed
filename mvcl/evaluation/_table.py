"""The measures of one set of features, and the table that compares several."""

from collections.abc import Mapping, Sequence

import numpy as np

from mvcl.evaluation._probe import FEW_LABEL_PENALTY, few_label_probe, linear_probe
from mvcl.evaluation._result import Result
from mvcl.metrics import weighted_knn

_COLUMNS = 12  # of a table as text, and names of a list


def evaluate_features(
    features: Mapping[str, np.ndarray],
    labels: Mapping[str, np.ndarray],
    *,
    num_classes: int,
    seed: int = 0,
    k: int = 200,
    temperature: float = 0.07,
    labels_per_class: Sequence[int] = (5, 10),
    draws: int = 10,
) -> list[Result]:
    """Weighted k-NN, linear probe and few-label probes of one set of features, by one protocol.

    Args:
      features: "train" and "test" to (n, d) and (m, d) floating features.
      labels: "train" and "test" to (n,) and (m,) integers in [0, num_classes).
      num_classes: number of classes.
      seed: of the held-out part and the drawn labels; the same for every row of a table.
      k: voting neighbours, at most n.
      temperature: of the neighbours' weights, no unit.
      labels_per_class: one few-label probe for each entry.
      draws: draws of labels in each.

    Returns:
      Test accuracies named "k-NN", "linear" and "<c> labels/class".
    """
    for name, given in (("features", features), ("labels", labels)):
        if not {"train", "test"} <= set(given):
            raise ValueError(f'{name} must have the splits "train" and "test", got {sorted(given)}')
    data = (features["train"], labels["train"], features["test"], labels["test"])
    n, m = len(data[0]), len(data[2])
    of_class = np.bincount(data[1], minlength=num_classes)

    def knn() -> list[Result]:
        voted = weighted_knn(*data[:3], num_classes=num_classes, k=k, temperature=temperature)
        how = (
            f"test accuracy of a vote of the {min(k, n)} nearest of {n} training rows by cosine, "
            f"weights exp(cos/{temperature:g}), {m} test rows"
        )
        return [Result("k-NN", float(np.mean(np.asarray(voted) == np.asarray(data[3]))), None, how)]

    def linear() -> list[Result]:
        if of_class.max() < 5:
            why = f"not measured: choosing the penalty needs 5 rows of a class, the largest has {of_class.max()}"
            return [Result("linear", None, None, why)]
        accuracy, _ = linear_probe(*data, num_classes=num_classes, seed=seed)
        how = (
            f"logistic regression on {n} labels, features standardised by the training split, "
            f"L2 penalty chosen on a held-out fifth of it, {m} test rows"
        )
        return [Result("linear", accuracy, None, how)]

    def few_labels(count: int) -> list[Result]:
        name = f"{count} labels/class"
        if of_class.min() < count:
            why = f"not measured: class {of_class.argmin()} has {of_class.min()} of the {count} labels needed"
            return [Result(name, None, None, why)]
        scores = few_label_probe(
            *data,
            num_classes=num_classes,
            labels_per_class=count,
            draws=draws,
            seed=seed,
        )
        how = (
            f"logistic regression on {count} labels of each of {num_classes} classes, "
            f"mean and standard deviation of {draws} draws (seed {seed}), "
            f"features centred and divided by one scale, L2 penalty {FEW_LABEL_PENALTY:g}, {m} test rows"
        )
        spread = float(scores.std(ddof=1)) if draws > 1 else None
        return [Result(name, float(scores.mean()), spread, how)]

    results = knn() + linear()
    for count in labels_per_class:
        results += few_labels(count)
    return results


def evaluation_table(rows: Mapping[str, Sequence[Result]]) -> str:
    """The table as text, followed by one line on how each measure was measured.

    A measure is a column; more than 12 measures are rows.

    Args:
      rows: row name ("trained encoder", "untrained encoder", "raw input") to its results.

    Returns:
      Lines of text without a final newline. "-" means not measured.
    """
    columns = list(dict.fromkeys(result.name for results in rows.values() for result in results))
    cells = [["", *columns]]
    for row, results in rows.items():
        by_name = {result.name: result for result in results}
        cells.append([row, *(_cell(by_name.get(column)) for column in columns)])
    if len(columns) > _COLUMNS:
        cells = [list(line) for line in zip(*cells)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:]))]).rstrip()
        for line in cells
    ]
    lines.append("")
    by_protocol: dict[tuple[str, str], list[str]] = {}  # columns with the same protocol share a line
    for column in columns:
        protocols: dict[str, list[str]] = {}
        for row, results in rows.items():
            for result in results:
                if result.name == column:
                    protocols.setdefault(result.protocol, []).append(row)
        for protocol, where in protocols.items():
            only = "" if len(protocols) == 1 else f" ({', '.join(where)})"
            by_protocol.setdefault((protocol, only), []).append(column)
    lines += [f"{_listed(names)}{only}: {protocol}." for (protocol, only), names in by_protocol.items()]
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    """The names; of more than 12 the first and the last."""
    return (
        ", ".join(names) if len(names) <= _COLUMNS else f"{names[0]} to {names[-1]} ({len(names)} measures)"
    )


def _cell(result: Result | None) -> str:
    if result is None or result.value is None:
        return "-"
    return f"{result.value:.3f}" + ("" if result.deviation is None else f" ± {result.deviation:.3f}")
