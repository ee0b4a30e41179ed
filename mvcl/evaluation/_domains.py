"""Transfer between domains: classifiers trained on one domain, or on all others, and tested on another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from mvcl import _files
from mvcl._progress import track
from mvcl.evaluation._classification import LinearProbe, sgd_probe, shuffled
from mvcl.evaluation._evaluation import Arrays, Augmented, Evaluation, Result, Rows, Splits
from mvcl.evaluation._probe import linear_probe


@dataclass(frozen=True)
class Transfer:
    """Test accuracies from S training domains to T test domains."""

    domains: tuple[str, ...]
    """The S training domains, in the order of the rows."""
    targets: tuple[str, ...]
    """The T test domains, in the order of the columns."""
    one: np.ndarray
    """(S, T): trained on the row's domain, tested on the column's; within-domain accuracy where they are the same."""
    rest: np.ndarray
    """(T,): trained on all training domains but this one together, tested on this one."""

    @property
    def transfers(self) -> np.ndarray:
        """(S, T) bool: whether row and column are different domains."""
        return np.asarray([[row != column for column in self.targets] for row in self.domains])

    def results(self, how: str = "linear probe") -> list[Result]:
        """The means over domains and each entry, for an evaluation table; `how` is the classifier in words."""
        seen = len(self.domains) - (self.targets[0] in self.domains)
        whole = f"the {seen} other" if set(self.targets) <= set(self.domains) else f"the {seen} training"
        to = ", ".join(self.targets)
        found = [
            (f"{seen} to 1", self.rest.mean(), f"{how} on {whole} domains together, tested on {to}"),
            ("1 to 1", self.one[self.transfers].mean(), f"{how} on one other domain, tested on {to}, mean"),
        ]
        if not self.transfers.all():
            within = self.one[~self.transfers].mean()
            found.append(("within", within, f"{how} on one domain, tested on its own test split, mean"))
        if len(self.targets) > 1:
            together = f"{how} on {whole} domains together"
            found += [(f"to {name}", value, together) for name, value in zip(self.targets, self.rest)]
        else:
            alone = zip(self.domains, self.one[:, 0])
            found += [(f"{name} to {to}", value, f"{how} on one domain") for name, value in alone]
        return [Result(name, float(value), None, line) for name, value, line in found]


def domain_transfer(
    train: Mapping[str, Rows], test: Mapping[str, Rows], *, num_classes: int, seed: int = 0
) -> Transfer:
    """`linear_probe` from one domain to another, and from all others to one. Piran 2024, Section 4.2 and Appendix B.

    The paper tests on the domain that pre-training has not seen: `test` then has that domain, and `train` the others.

    Args:
      train: domain name to (n_s, d) features and (n_s,) labels of its training split; two domains at least.
      test: the same for the test splits; a domain or several, in `train` or not.
      seed: of the held-out rows.
    """
    if len(train) < 2 or not test:
        got = f"{sorted(train)} and {sorted(test)}"
        raise ValueError(f"train must have at least two domains and test at least one, got {got}")
    one, rest = np.zeros((len(train), len(test))), np.zeros(len(test))
    for i, name in enumerate(track(train, "probes of one domain", len(train), "domains")):
        one[i], _ = linear_probe(train[name], *test.values(), num_classes=num_classes, seed=seed)
    tests = track(test.items(), "probes of all other domains", len(test), "domains")
    for j, (name, rows) in enumerate(tests):
        features, labels = zip(*(train[other] for other in train if other != name))
        others = np.concatenate(features), np.concatenate(labels)
        (rest[j],), _ = linear_probe(others, rows, num_classes=num_classes, seed=seed)
    return Transfer(tuple(train), tuple(test), one, rest)


def transfer_table(transfer: Transfer) -> str:
    """Markdown table in per cent: rows are training domains, columns test domains, plus the row of all others.

    What is within a domain, which is not transfer, is in brackets.
    """
    rows = [["trained on", *transfer.targets], ["---", *["---:"] * len(transfer.targets)]]
    for name, values, between in zip(transfer.domains, transfer.one, transfer.transfers):
        rows.append([name, *(f"{v:.1%}" if other else f"({v:.1%})" for v, other in zip(values, between))])
    rows.append(["all others", *(f"{v:.1%}" for v in transfer.rest)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


@dataclass(frozen=True, kw_only=True)
class Domains(Evaluation):
    """Linear probes from one training domain to the held-out one, and from all of them together; as a table.

    Needs splits DOMAIN/train and DOMAIN/test, and `train` whose views are named after its domains. Without a held-out
    domain every one is tested by the classifiers of the others.
    """

    linear: LinearProbe | None = None
    """Train the classifiers by SGD, as in Piran 2024, Appendix B, instead of by logistic regression; of several
    learning rates each has the one that `choose` says. Needs a held-out domain and the split `seen`, the training
    images of all others. With augmentation only the trained encoder is probed."""
    choose: Literal["seen", "unseen"] = "seen"
    """Test images by which the learning rate of each classifier of `linear` is chosen: those of the domains that it is
    trained on, or those of the held-out one, an optimistic choice."""

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """Both splits of each domain, or with augmentation the test splits; and `test`."""
        names = tuple(name for name in available if "/" in name)
        if len(names) < 4:
            got = ", ".join(available)
            raise ValueError(f"evaluation:domains needs DOMAIN/train and DOMAIN/test, got {got}")
        if self._augments:
            names = tuple(name for name in names if name.endswith("/test"))
        return (*names, "test")

    @property
    def compared(self) -> bool:
        return self.baselines and not self._augments

    @property
    def passes(self) -> int:
        return self.linear.passes if self.linear is not None and self.linear.augment else 1

    @property
    def _augments(self) -> bool:
        return self.linear is not None and self.linear.augment

    def check(self, splits: Splits) -> None:
        self.splits(tuple(splits))
        if self.linear is None:
            return
        if len(self._targets(splits)) != 1 or "seen" not in splits:
            got = f"the test domains {', '.join(self._targets(splits))} and the splits {', '.join(splits)}"
            raise ValueError(f"evaluation.linear needs --data.held-out and the split `seen`, got {got}")
        for name in ("seen", *(f"{source}/train" for source in splits["train"].spec.view_names)):
            self.linear.check_processes(len(splits[name]))

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        transfer, how = self._transfer(features, splits)
        return transfer.results(how)

    def measure_trained(
        self, features: Arrays, splits: Splits, augmented: Augmented, folder: Path | None
    ) -> list[Result]:
        """`measure`, or the accuracies of SGD with augmentation; writes the table domains.md."""
        transfer, how = self._transfer(features, splits, augmented if self._augments else None)
        if folder is not None:
            _files.write_whole(folder / "domains.md", transfer_table(transfer) + "\n")
        return transfer.results(how)

    def _targets(self, splits: Splits) -> list[str]:
        """The domains that pre-training has not seen; all, if there is none."""
        names = [name.removesuffix("/test") for name in splits if name.endswith("/test")]
        sources = splits["train"].spec.view_names
        return [name for name in names if name not in sources] or names

    def _transfer(
        self, features: Arrays, splits: Splits, augmented: Augmented | None = None
    ) -> tuple[Transfer, str]:
        """The accuracies, and the classifier in words."""
        rows = {name: (features[name], splits[name].labels) for name in features}
        sources, targets = splits["train"].spec.view_names, self._targets(splits)
        classes, options = len(splits["test"].class_names), self.linear
        if options is None:
            train = {domain: rows[f"{domain}/train"] for domain in sources}
            test = {domain: rows[f"{domain}/test"] for domain in targets}
            return domain_transfer(train, test, num_classes=classes, seed=self.seed), "linear probe"
        best, (target,) = list[float](), targets
        for split, own in ({f"{source}/train": (source,) for source in sources} | {"seen": sources}).items():
            count = len(splits[split])
            if augmented is not None:
                batches = options.augmented(augmented, split, count, self.seed)
            else:
                x, y = map(np.concatenate, zip(*(rows[f"{source}/train"] for source in own)))
                size, _ = options.steps(count)
                batches = shuffled(x, y, batch_size=size, epochs=options.epochs, seed=self.seed)
            tests = [rows[f"{of}/test"] for of in (target, *(own if self.choose == "seen" else [target]))]
            found = sgd_probe(batches, *tests, num_classes=classes, rows=count, options=options)
            rates = np.nan_to_num(found)
            best.append(float(rates[np.argmax(rates[:, 1:].mean(1)), 0]))
        transfer = Transfer(sources, (target,), np.asarray(best[:-1])[:, None], np.asarray(best[-1:]))
        # The number of labels is that of each classifier's own domains.
        _, _, trained = options.described(len(splits["seen"])).partition(" labels, ")
        images = "own domains" if self.choose == "seen" else "held-out domain"
        chosen = f", the best on test images of its {images}" if len(options.learning_rates) > 1 else ""
        return transfer, f"a linear layer trained by {trained}{chosen},"
