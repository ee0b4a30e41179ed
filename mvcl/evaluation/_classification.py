"""Classification of frozen features, and the linear probe of the papers, trained by SGD."""

import dataclasses
import math
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mvcl import _checks, evaluation
from mvcl._progress import during, track
from mvcl.augment import Policy
from mvcl.evaluation._evaluation import Arrays, Augmented, Batches, Evaluation, Result, Rows, Splits, averaged
from mvcl.evaluation._probe import FEW_LABEL_PENALTY, checked_rows, descend, few_label_probe, linear_probe
from mvcl.metrics import weighted_knn

# Numbers in the batches that one call of the compiled program takes.
_NUMBERS = 1 << 22


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearProbe:
    """A linear layer trained by SGD on the frozen features of all training labels.

    Cross-entropy; zero initial weights; the weight decay is part of the gradient, of weights and biases; features are
    not scaled. Several learning rates are trained side by side on the same batches; all test accuracies are reported,
    and the highest as the probe's: as in the papers the choice uses the test labels, so it is optimistic by a little.
    """

    learning_rates: tuple[float, ...] = (0.1,)
    """Initial learning rates, each for a probe of its own."""
    reference_batch: int | None = None
    """The learning rates are multiplied by batch_size / reference_batch; None does not scale them."""
    batch_size: int = 256
    """Rows of a step; at most those of the training split."""
    epochs: int = 100
    """Passes over the training split."""
    momentum: float = 0.9
    """Share of a step that the next one keeps."""
    nesterov: bool = False
    """Nesterov's momentum: the step is momentum times what is kept after the gradient was added, and the gradient."""
    weight_decay: float = 0.0
    """Weight decay, a part of the gradient."""
    decay: Literal["cosine", "linear", "constant", "steps"] = "cosine"
    """Decay of the learning rate, at each step: `cosine` or `linear` to zero, none, or to a tenth at each milestone."""
    milestones: tuple[int, ...] = ()
    """Epochs of `decay=steps`, counted from 0, at whose start the learning rate falls to a tenth."""
    augment: bool = True
    """Encode the training split again in every epoch, under random resized crops (a share 0.08 to 1 of the area) and
    flips (with the probability of the first view's policy). False: one feature vector of each image."""
    crop_padding: int = 0
    """With augment: crops of the image's size after its borders are reflected by this many pixels, 4 in the code of
    Koromilas 2025 for CIFAR. 0: resized crops."""
    policy: Policy | None = None
    """With augment: this policy in place of crops and flips, at the size and with the normalisation of the evaluation;
    Jeon 2025's code for CIFAR-10 has jitter and grayscale too."""

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("batch_size", "epochs", "reference_batch"), "[1, inf)")
        amounts = {"learning_rates": "(0, inf)", "weight_decay": "[0, inf)", "crop_padding": "[0, inf)"}
        _checks.fields("linear", self, **counts, **amounts, momentum="[0, 1)")
        if (self.decay == "steps") != bool(self.milestones) or any(epoch < 1 for epoch in self.milestones):
            what = "linear.milestones must be epochs of at least 1 for linear.decay=steps, else none"
            raise ValueError(f"{what}, got {self.milestones} for {self.decay}")
        if self.policy is not None and (self.crop_padding or not self.augment):
            got = f"{self.augment} and {self.crop_padding}"
            raise ValueError(f"linear.policy needs linear.augment=True and linear.crop_padding=0, got {got}")

    @property
    def passes(self) -> int:
        """How often the training split is encoded under augmentation."""
        return self.epochs if self.augment else 0

    def steps(self, rows: int) -> tuple[int, int]:
        """Rows of a step, and steps of an epoch, for a training split of this many rows."""
        size = min(self.batch_size, rows)
        return size, rows // size

    def check_processes(self, rows: int) -> None:
        """Raise `ValueError` if the processes cannot share the encoding of a step's rows under augmentation."""
        (size, _), processes = self.steps(rows), jax.process_count()
        if self.augment and size % processes:
            what = f"evaluation.linear.batch_size must be a multiple of {processes} processes"
            raise ValueError(f"{what}, got {self.batch_size} and a split of {rows} rows")

    def augmented(self, encode: Augmented, split: str, rows: int, seed: int) -> Batches:
        """The batches of the probe's steps under augmentation, for a split of this many rows."""
        size, per_epoch = self.steps(rows)
        return encode(split, probe=self, batch_size=size, steps=self.epochs * per_epoch, seed=seed)

    def factors(self, rows: int) -> np.ndarray:
        """Multiples of the learning rates at each step, for a training split of this many rows."""
        size, per_epoch = self.steps(rows)
        step = np.arange(self.epochs * per_epoch)
        share = step / len(step)
        passed = np.sum([step >= epoch * per_epoch for epoch in self.milestones], axis=0)
        shapes = {
            "cosine": 0.5 * (1 + np.cos(math.pi * share)),
            "linear": 1 - share,
            "constant": np.ones(len(step)),
            "steps": 0.1**passed,
        }
        scale = size / self.reference_batch if self.reference_batch else 1.0
        return np.asarray(scale * shapes[self.decay], np.float32)

    def described(self, rows: int) -> str:
        """The protocol in words, for a training split of this many rows."""
        size, _ = self.steps(rows)
        rates = ", ".join(f"{rate:g}" for rate in self.learning_rates)
        rates += f" x {size}/{self.reference_batch}" if self.reference_batch else ""
        tenth = f"a tenth of it from epochs {', '.join(map(str, self.milestones))}"
        decay = {"constant": "no decay", "steps": tenth}.get(self.decay, f"{self.decay} decay")
        drawn = "crops and flips" if self.policy is None else "views of a policy of its own"
        drawn = f"fresh {drawn} each epoch" if self.augment else "no augmentation"
        drawn += f" (borders of {self.crop_padding} pixels)" if self.augment and self.crop_padding else ""
        return (
            f"a linear layer on {rows} labels, SGD with momentum {self.momentum:g}, learning rate {rates} with "
            f"{decay}, weight decay {self.weight_decay:g}, {self.epochs} epochs, batch {size}, {drawn}"
        )


def sgd_probe(
    batches: Batches, *tests: Rows, num_classes: int, rows: int, options: LinearProbe
) -> np.ndarray:
    """Test accuracies of a linear layer trained by SGD on batches of features, for each learning rate.

    Args:
      batches: features (b, d) floating and labels (b,) integers in [0, num_classes) of each of `options.epochs` x
        `options.steps(rows)[1]` steps; `shuffled` gives those of features in memory.
      *tests: (m, d) floating, and (m,) integers likewise, of each of t test sets.
      rows: rows of the training split.

    Returns:
      (learning rates, t) test accuracies in [0, 1]; NaN where the weights became infinite.
    """
    checked_tests = [checked_rows("test", *test, num_classes) for test in tests]
    width = checked_tests[0][0].shape[1]
    (size, _), factors, step = options.steps(rows), options.factors(rows), 0
    rates, total = jnp.asarray(options.learning_rates, jnp.float32), len(factors)
    start = jnp.zeros((width, num_classes)), jnp.zeros(num_classes)
    state = jax.vmap(lambda rate: (start, _rule(options, factors, rate).init(start)))(rates)
    taken = track(islice(iter(batches), total), "linear probe by SGD", total, f"batches of {size}")
    checked = (checked_rows("train", *batch, num_classes, width) for batch in taken)
    while some := list(islice(checked, math.ceil(_NUMBERS / (size * width)))):
        x, y = map(np.stack, zip(*some))
        state, step = _trained(options, state, (x, y), factors, rates), step + len(x)
    if step < total:
        raise ValueError(f"batches must have {total} batches, got {step}")
    found = []
    for w, b in zip(*jax.device_get(state[0])):
        right = [np.mean(np.argmax(x @ w + b, axis=1) == y) for x, y in checked_tests]
        finite = np.isfinite(w).all() and np.isfinite(b).all()
        found.append(right if finite else [math.nan] * len(right))
    return np.asarray(found)


def shuffled(
    features: np.ndarray, labels: np.ndarray, *, batch_size: int, epochs: int, seed: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Whole batches of features in memory, in another order in every epoch."""
    for epoch in range(epochs):
        order = np.random.default_rng((seed, epoch)).permutation(len(features))
        for start in range(0, len(order) - batch_size + 1, batch_size):
            rows = order[start : start + batch_size]
            yield features[rows], labels[rows]


def _rule(
    options: LinearProbe, factors: np.ndarray | jax.Array, rate: jax.Array
) -> optax.GradientTransformation:
    decay = optax.add_decayed_weights(options.weight_decay)
    sgd = optax.sgd(lambda step: rate * jnp.asarray(factors)[step], options.momentum, options.nesterov)
    return optax.chain(decay, sgd)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _trained(options: LinearProbe, state: Any, batches: Rows, factors: jax.Array, rates: jax.Array) -> Any:
    """The state of every rate after s steps, of features (s, b, d) and labels (s, b), with the factors of all steps."""

    def loss(weights: tuple[jax.Array, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        logits = jnp.matmul(x, weights[0], precision=jax.lax.Precision.HIGHEST) + weights[1][None]
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, y))

    return jax.vmap(lambda of, rate: descend(_rule(options, factors, rate), loss, of, batches))(state, rates)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(Evaluation):
    """Weighted k-NN, linear probe and few-label probes."""

    scored: ClassVar[bool] = True
    knn_k: int = 200
    """Neighbours of the weighted k-NN; at most the size of the training split."""
    knn_temperature: float = 0.07
    """Temperature of the k-NN's weights e^{cos / temperature}."""
    knn_head: bool = False
    """Also the k-NN of the projection head's output, `k-NN, head`, beside that of the encoder's."""
    labels_per_class: tuple[int, ...] = (5, 10)
    """Labels per class of the few-label probes."""
    draws: int = 10
    """Draws of labels to average each few-label probe over."""
    of: str = ""
    """Use the splits OF/train and OF/test, for example of a second data set; empty: train and test."""
    linear: LinearProbe | None = None
    """An additional linear probe trained by SGD on all labels, as in the papers; with augmentation only of the trained
    encoder."""

    @property
    def passes(self) -> int:
        return 1 + (0 if self.linear is None else self.linear.passes)

    def of_clusters(self, clusters: int) -> Evaluation:
        return self._unmeasured("the data have no classes")

    def _unmeasured(self, reason: str) -> Evaluation:
        own = {name: getattr(self, name) for name in ("features", "batch_size", "seed")}
        return evaluation.Unevaluated(**own, reason=reason)

    def without_test(self) -> Evaluation:
        return self if self.of else self._unmeasured("no example is held out of training")

    def check(self, splits: Splits) -> None:
        train, _ = self.splits(tuple(splits))
        spec = splits[train].spec
        if self.knn_head and self.features != "encoder":
            raise ValueError(f"evaluation.knn_head needs evaluation.features=encoder, got {self.features}")
        if self.linear is None:
            return
        if self.linear.augment and (spec.given or len(spec.shapes) > 1):
            views = f"given views {', '.join(spec.view_names)}"
            got = views if spec.given else f"{len(spec.shapes)} images an example"
            what = "evaluation.linear.augment crops and flips images, so the examples must be one image each"
            raise ValueError(f"{what}, got {got}; use --evaluation.linear.augment False")
        self.linear.check_processes(len(splits[train]))

    def measure(self, features: Arrays, splits: Splits, augmented: Augmented | None = None) -> list[Result]:
        """Test accuracies named "k-NN", "k-NN, head", "linear", "<c> labels/class" and "linear, SGD"."""
        results, names = [], self.splits(tuple(splits))
        train, test = ((features[name], splits[name].labels) for name in names)
        classes = len(splits[names[0]].class_names)
        n, m, of_class = len(train[0]), len(test[0]), np.bincount(train[1], minlength=classes)
        how = (
            f"test accuracy of a vote of the {min(self.knn_k, n)} nearest of {n} training rows by cosine, "
            f"weights exp(cos/{self.knn_temperature:g}), {m} test rows"
        )
        for end in ("", ", head"):
            of = {name: features[f"{name}{end}"] for name in names if f"{name}{end}" in features}
            if of:  # the raw input has no head
                with during(f"k-NN{end}"):
                    _, nearest = self.score(of, splits)
                results.append(Result(f"k-NN{end}", nearest, None, how))
        if of_class.max() < 5:
            why = f"not measured: choosing the penalty needs 5 rows of a class, the largest has {of_class.max()}"
            results.append(Result("linear", None, None, why))
        else:
            (accuracy,), _ = linear_probe(train, test, num_classes=classes, seed=self.seed)
            how = (
                f"logistic regression on {n} labels, features standardised by the training split, "
                f"L2 penalty chosen on a held-out fifth of it, {m} test rows"
            )
            results.append(Result("linear", accuracy, None, how))
        for count in self.labels_per_class:
            name = f"{count} labels/class"
            if of_class.min() < count:
                why = f"not measured: class {of_class.argmin()} has {of_class.min()} of the {count} labels needed"
                results.append(Result(name, None, None, why))
                continue
            options = {"labels_per_class": count, "draws": self.draws, "seed": self.seed}
            scores = few_label_probe(train, test, num_classes=classes, **options)
            how = (
                f"logistic regression on {count} labels of each of {classes} classes, mean and standard deviation of "
                f"{self.draws} draws (seed {self.seed}), features centred and divided by one scale, "
                f"L2 penalty {FEW_LABEL_PENALTY:g}, {m} test rows"
            )
            results.append(averaged(name, scores, how))
        if self.linear is None or (self.linear.augment and augmented is None):
            return results
        if augmented is not None and self.linear.augment:
            batches = self.linear.augmented(augmented, names[0], n, self.seed)
        else:
            size, _ = self.linear.steps(n)
            batches = shuffled(*train, batch_size=size, epochs=self.linear.epochs, seed=self.seed)
        accuracies = sgd_probe(batches, test, num_classes=classes, rows=n, options=self.linear)[:, 0]
        how = f"{self.linear.described(n)}, {m} test rows"
        each = []
        for rate, reached in zip(self.linear.learning_rates, accuracies):
            wrong = "; not measured: the weights became infinite" if np.isnan(reached) else ""
            value = None if wrong else float(reached)
            each.append(Result(f"linear, SGD {rate:g}", value, None, how + wrong))
        if len(each) == 1:
            return [*results, dataclasses.replace(each[0], name="linear, SGD")]
        best = max((result.value for result in each if result.value is not None), default=None)
        how += ", the learning rate with the highest test accuracy"
        return [*results, Result("linear, SGD", best, None, how), *each]

    def measure_trained(
        self, features: Arrays, splits: Splits, augmented: Augmented, folder: Path | None
    ) -> list[Result]:
        """`measure`, and test accuracy of the SGD probe with augmentation."""
        return self.measure(features, splits, augmented)

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float]:
        names = self.splits(tuple(splits))
        train, (x, y) = ((features[name], splits[name].labels) for name in names)
        classes = len(splits[names[0]].class_names)
        voted = weighted_knn(*train, x, num_classes=classes, k=self.knn_k, temperature=self.knn_temperature)
        return "knn", float(np.mean(np.asarray(voted) == y))
