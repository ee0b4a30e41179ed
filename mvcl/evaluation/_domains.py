"""Transfer between domains: classifiers trained on one domain, or on all others, and tested on another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mvcl.evaluation._probe import PENALTIES, fit_probe
from mvcl.evaluation._protocols import Arrays, Evaluation, Splits
from mvcl.evaluation._table import Result


@dataclass(frozen=True)
class Transfer:
    """Test accuracies between S domains."""

    domains: tuple[str, ...]
    """The S domain names, in the order of rows and columns."""
    one: np.ndarray
    """(S, S): trained on the row's domain, tested on the column's; the diagonal is within-domain accuracy."""
    rest: np.ndarray
    """(S,): trained on all other domains together, tested on this one."""

    def results(self) -> list[Result]:
        """The means over domains and the entry of each domain, as results of an evaluation table."""
        s = len(self.domains)
        between = self.one[~np.eye(s, dtype=bool)]
        found = [
            Result(
                f"{s - 1} to 1",
                float(self.rest.mean()),
                None,
                f"linear probe on {s - 1} domains, tested on the held-out one, mean over {s}",
            ),
            Result(
                "1 to 1",
                float(between.mean()),
                None,
                f"linear probe on one domain, tested on another, mean over {len(between)} ordered pairs",
            ),
            Result(
                "within",
                float(np.diag(self.one).mean()),
                None,
                f"linear probe on one domain, tested on its own test split, mean over {s}",
            ),
        ]
        for name, value in zip(self.domains, self.rest):
            found.append(
                Result(f"to {name}", float(value), None, f"linear probe on the {s - 1} other domains")
            )
        return found


def domain_transfer(
    train: Mapping[str, tuple[np.ndarray, np.ndarray]],
    test: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    num_classes: int,
    seed: int = 0,
    penalties: Sequence[float] = PENALTIES,
) -> Transfer:
    """Linear probes from one domain to another, and from all other domains to one. Piran 2024, Section 5.2.

    Each of the 2 S classifiers is that of `linear_probe`, with its penalty chosen on held-out rows of its training
    domains; no data of the test domain are used.

    Args:
      train: domain name to (n_s, d) features and (n_s,) labels of its training split.
      test: the same for the test splits.
      num_classes: number of classes, the same in all domains.
      seed: of the held-out rows.
      penalties: candidates, each >= 0.

    Returns:
      The (S, S) and the (S,) accuracies.

    Raises:
      ValueError: fewer than two domains, or different domains in train and test.
    """
    domains = tuple(train)
    if len(domains) < 2 or set(domains) != set(test):
        raise ValueError(
            f"train and test must have the same domains, at least two, got {sorted(train)} and {sorted(test)}"
        )
    one, rest = np.zeros((len(domains), len(domains))), np.zeros(len(domains))
    for i, name in enumerate(domains):
        probe = fit_probe(*train[name], num_classes=num_classes, seed=seed, penalties=penalties)
        one[i] = [probe.accuracy(*test[other]) for other in domains]
        others = [train[other] for other in domains if other != name]
        features, labels = (np.concatenate(arrays) for arrays in zip(*others))
        probe = fit_probe(features, labels, num_classes=num_classes, seed=seed, penalties=penalties)
        rest[i] = probe.accuracy(*test[name])
    return Transfer(domains, one, rest)


def transfer_table(transfer: Transfer) -> str:
    """Markdown table in per cent: rows are training domains, columns test domains, plus the row of all others.

    The diagonal, which is not transfer, is in brackets.
    """
    names = transfer.domains
    lines = ["| trained on | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    for i, name in enumerate(names):
        cells = [f"({v:.1%})" if i == j else f"{v:.1%}" for j, v in enumerate(transfer.one[i])]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("| all others | " + " | ".join(f"{v:.1%}" for v in transfer.rest) + " |")
    return "\n".join(lines)


def transfer_heat_map(transfer: Transfer, file: Path) -> None:
    """The same as an SVG heat map; the colour range is that of the transfers, the diagonal is grey."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    s = len(transfer.domains)
    values = np.concatenate([transfer.one, transfer.rest[None]])
    shown = np.ma.masked_array(values, np.eye(s + 1, s, dtype=bool))
    with rc_context({"svg.hashsalt": "mvcl", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(1.6 + 0.75 * s, 1.2 + 0.6 * s), layout="constrained")
        axes = figure.subplots()
        axes.set_facecolor("0.85")
        picture = axes.imshow(shown, cmap="viridis", aspect="auto")
        middle = (float(shown.min()) + float(shown.max())) / 2
        for (i, j), value in np.ndenumerate(values):
            dark = i != j and value < middle
            axes.text(j, i, f"{100 * value:.1f}", ha="center", va="center", color="w" if dark else "k")
        axes.set_xticks(range(s), transfer.domains, rotation=30, ha="right")
        axes.set_yticks(range(s + 1), [*transfer.domains, "all others"])
        axes.set(xlabel="tested on", ylabel="trained on", title="Test accuracy, %")
        figure.colorbar(picture)
        figure.savefig(file, format="svg", metadata={"Date": None})


@dataclass(frozen=True, kw_only=True)
class Domains(Evaluation):
    """Linear probes from one domain to another, and from all others to one; a table and a heat map of the matrix.

    Needs splits DOMAIN/train and DOMAIN/test.
    """

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """Both splits of each domain, and `test` for the embedding plot."""
        names = tuple(name for name in available if "/" in name)
        if len(names) < 4:
            raise ValueError(
                f"evaluation:domains needs splits DOMAIN/train and DOMAIN/test, got {', '.join(available)}"
            )
        return (*names, "test")

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """Mean test accuracies of all-others-to-one, one-to-one and within-domain, and the accuracy for each domain."""
        return self._transfer(features, splits).results()

    def save(self, features: Arrays, splits: Splits, workdir: Path) -> None:
        """Write the matrix as domains.md and domains.svg."""
        transfer = self._transfer(features, splits)
        (workdir / "domains.md").write_text(transfer_table(transfer) + "\n")
        transfer_heat_map(transfer, workdir / "domains.svg")

    def _transfer(self, features: Arrays, splits: Splits) -> Transfer:
        domains = [name.removesuffix("/train") for name in features if name.endswith("/train")]
        train, test = (
            {d: (features[f"{d}/{part}"], splits[f"{d}/{part}"].labels) for d in domains}
            for part in ("train", "test")
        )
        return domain_transfer(train, test, num_classes=len(splits["test"].class_names), seed=self.seed)
