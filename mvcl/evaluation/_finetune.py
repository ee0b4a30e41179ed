"""Full fine-tuning: encoder and a new linear layer trained on labelled images, with strong augmentation."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.tree_util import Partial

from mvcl import augment, models
from mvcl.evaluation._encode import encode
from mvcl.evaluation._table import Result

State = dict[str, Any]


class ImageSpec(Protocol):
    """What an image is: `image_shape`, (H, W, C) when all images have it, else None."""

    @property
    def image_shape(self) -> tuple[int, int, int] | None: ...


class LabelledImages(Protocol):
    """What is needed of a split; `mvcl.data.Split` has it.

    Attributes:
      labels: (N,) class numbers.
      class_names: name of each class.
      spec: what an example is.
      read: (row, epoch) -> an image (H, W, C), as a tuple of one.
      arrays: all N images in memory, as a tuple of one, or None.
    """

    @property
    def labels(self) -> np.ndarray: ...
    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def spec(self) -> ImageSpec: ...
    @property
    def read(self) -> Callable[[int, int], tuple[np.ndarray, ...]]: ...
    @property
    def arrays(self) -> tuple[np.ndarray, ...] | None: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetune:
    """How a network is fine-tuned (after Shidani 2024, Table 2).

    The paper names the ingredients; the strengths here are those of DeiT (Touvron et al. 2021, Table 9), where most
    of them come from.
    """

    epochs: float = 100.0
    """Passes over the training split; in each, every image is shown `repeats` times."""
    batch_size: int = 256
    """Views of a batch, repeats included."""
    repeats: int = 3
    """Repeated augmentation: views of each image in a batch, each drawn anew."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """adamw, or sgd with Nesterov momentum 0.9."""
    learning_rate: float = 5e-4
    """Peak rate, of all layers."""
    warmup_epochs: float = 5.0
    """Epochs of linear warm-up; then a cosine to 0."""
    weight_decay: float = 0.05
    """Decoupled weight decay; biases, norms and other vectors are never decayed."""
    clip_norm: float | None = None
    """Gradients are scaled down to this global norm; None leaves them."""
    label_smoothing: float = 0.1
    """Share of a target that is spread over all classes."""
    mixup: float = 0.8
    """Alpha of mixup's Beta distribution; 0 for none."""
    cutmix: float = 1.0
    """Alpha of CutMix's; 0 for none. With both, each batch takes one of them at random."""
    rand_augment_ops: int = 2
    """RandAugment operations of a view."""
    rand_augment_magnitude: float = 9.0
    """Their magnitude, 0 to 30."""
    erase_probability: float = 0.25
    """Probability of random erasing."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Smallest and largest area of a random crop."""
    flip_probability: float = 0.5
    """Probability of mirroring left and right."""
    seeds: int = 3
    """Runs, whose mean and deviation are reported; they differ in order, views and mixing."""
    seed: int = 0
    """The first of the seeds."""
    threads: int = 4
    """Host threads that read and decode images."""


@dataclasses.dataclass(frozen=True)
class FinetuneProgram:
    """The jitted functions of a fine-tuning.

    Attributes:
      init: () -> state: params ("encoder", "kernel", "bias"), statistics, opt and step.
      step: (state, batch, key) -> (state, loss); the state is donated. The batch has images (n, H, W, C), or
        (n, repeats, size, size, C) crops, labels, index and epoch, all (n,).
      logits: (params, statistics, images (b, ...)) -> (b, classes), nothing random.
      steps: updates in all.
      steps_per_epoch: updates in one pass.
      examples: images of a batch; each gives `repeats` views.
    """

    init: Callable[[], State]
    step: Callable[[State, Mapping[str, Any], jax.Array], tuple[State, jax.Array]]
    logits: Callable[[Any, Any, jax.Array], jax.Array]
    steps: int
    steps_per_epoch: int
    examples: int


def log_prior(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """(num_classes,) logarithms of the shares of the classes, the bias that a zero kernel predicts best with.

    A class without a row counts as half of one.
    """
    counts = np.maximum(np.bincount(labels, minlength=num_classes), 0.5)
    return np.log(counts / counts.sum()).astype(np.float32)


def finetune_program(
    encoder: nnx.Module,
    options: Finetune,
    view: augment.Policy,
    train_labels: np.ndarray,
    num_classes: int,
    *,
    cropped: bool = False,
) -> FinetuneProgram:
    """The programs of a fine-tuning of an encoder.

    Args:
      encoder: nnx module, images (n, size, size, C) to (n, features); it is copied and left as it is.
      options: the recipe.
      view: how the encoder is shown an image that it is tested on; its size, mean and std are those of the training
        views too.
      train_labels: (N,) class numbers of the training split.
      num_classes: how many classes there are.
      cropped: images are crops from the host.

    Raises:
      ValueError: an option is out of range.
    """
    _check(options, len(train_labels), num_classes)
    policy = _policy(options, view)
    examples = min(options.batch_size // options.repeats, len(train_labels))
    steps_per_epoch = len(train_labels) // examples
    steps = max(1, round(options.epochs * steps_per_epoch))
    rule = _rule(options, steps, steps_per_epoch)
    graph = nnx.graphdef(encoder)
    params, statistics = nnx.state(encoder, nnx.Param), nnx.state(encoder, nnx.Not(nnx.Param))
    width = int(encoder.features)  # type: ignore[attr-defined]
    bias = log_prior(train_labels, num_classes)

    def logits(params: Any, rest: Any, views: jax.Array, training: bool) -> tuple[jax.Array, Any]:
        network = nnx.merge(graph, params["encoder"], rest, copy=True)
        shown = models.train_view(network) if training else models.eval_view(network)
        return shown(views) @ params["kernel"] + params["bias"][None], nnx.state(network, nnx.Not(nnx.Param))

    @jax.jit
    def init() -> State:
        whole = {
            "encoder": jax.tree.map(jnp.copy, params),
            "kernel": jnp.zeros((width, num_classes)),
            "bias": jnp.asarray(bias),
        }
        rest = jax.tree.map(jnp.copy, statistics)
        return {
            "params": whole,
            "statistics": rest,
            "opt": rule.init(whole),
            "step": jnp.zeros((), jnp.int32),
        }

    @partial(jax.jit, donate_argnums=0)
    def step(state: State, batch: Mapping[str, Any], key: jax.Array) -> tuple[State, jax.Array]:
        # The key says which seed; the views follow from it, the epoch and the example alone.
        drawn, mixed = jax.random.split(key)
        number = jax.random.bits(drawn, dtype=jnp.uint32)
        views = augment.draw_views(
            (policy,) * options.repeats, batch["images"], number, batch["epoch"], batch["index"]
        )
        views = views.reshape(-1, *views.shape[2:])
        labels = jnp.repeat(batch["labels"], options.repeats)
        targets = augment.smooth_targets(labels, num_classes, options.label_smoothing)
        mixing = jax.random.fold_in(mixed, state["step"])
        views, targets = augment.random_mix(mixing, views, targets, options.mixup, options.cutmix)

        def loss(params: Any) -> tuple[jax.Array, Any]:
            found, rest = logits(params, state["statistics"], views, True)
            return optax.softmax_cross_entropy(found, targets).mean(), rest

        (value, rest), gradient = jax.value_and_grad(loss, has_aux=True)(state["params"])
        updates, opt = rule.update(gradient, state["opt"], state["params"])
        new = optax.apply_updates(state["params"], updates)
        return {"params": new, "statistics": rest, "opt": opt, "step": state["step"] + 1}, value

    look = jax.vmap(lambda image: augment.apply_policy(view, jax.random.key(0), image, cropped=cropped))

    def of_images(params: Any, rest: Any, images: jax.Array) -> jax.Array:
        return logits(params, rest, look(images), False)[0]

    return FinetuneProgram(init, step, of_images, steps, steps_per_epoch, examples)


def finetune(
    encoder: nnx.Module,
    splits: Mapping[str, LabelledImages],
    options: Finetune,
    view: augment.Policy,
    report: Callable[[str], None] = lambda line: None,
) -> list[Result]:
    """Fine-tune an encoder on "train" and measure it on "test", once for every seed.

    Args:
      encoder: nnx module, images (n, size, size, C) to (n, features); it is copied and left as it is.
      splits: "train" and "test", of the same classes.
      options: the recipe.
      view: how an image of the test split is shown, for instance `augment.evaluation`; its size, mean and std are
        those of the training views too.
      report: called with a line after every epoch.

    Returns:
      Test accuracy "fine-tuned", and "fine-tuned, mean per class", where all classes count alike; mean and
      standard deviation over seeds.

    Raises:
      ValueError: an option is out of range, the splits do not fit, or the loss is not finite.
    """
    if not {"train", "test"} <= set(splits):
        raise ValueError(f'splits must hold "train" and "test", got {sorted(splits)}')
    train, test = splits["train"], splits["test"]
    if train.class_names != test.class_names or not train.class_names:
        raise ValueError("splits must hold the same classes in train and test, and at least one")
    # Images of one size are cropped on the device; others are cropped here, and a batch is of crops.
    cropped = train.spec.image_shape is None or test.spec.image_shape is None
    classes = len(train.class_names)
    program = finetune_program(encoder, options, view, train.labels, classes, cropped=cropped)
    policy = _policy(options, view)
    answers = np.asarray(test.labels)
    whole, by_class = [], []
    with ThreadPoolExecutor(options.threads) as pool:
        for seed in range(options.seed, options.seed + options.seeds):
            state, key = program.init(), jax.random.key(seed)
            sums: list[jax.Array] = []
            for number, batch in enumerate(_batches(train, program, options, policy, seed, cropped, pool), 1):
                state, value = program.step(state, batch, key)
                sums.append(value)
                if number % program.steps_per_epoch == 0 or number == program.steps:
                    loss = float(np.mean(jax.device_get(sums)))
                    if not math.isfinite(loss):
                        raise ValueError(f"the loss of fine-tuning is {loss} at step {number} (seed {seed})")
                    report(f"seed {seed}  step {number} of {program.steps}  loss {loss:.4f}")
                    sums = []
            function = Partial(program.logits, state["params"], state["statistics"])
            shown = _shown(test, view, cropped, options.batch_size, pool)
            found, _ = encode(function, shown, batch_size=options.batch_size)
            right = found.argmax(1) == answers
            whole.append(float(right.mean()))
            present = np.unique(answers)
            by_class.append(float(np.mean([right[answers == c].mean() for c in present])))
    how = (
        f"encoder and a linear layer trained on {len(train.labels)} images for {options.epochs:g} epochs of "
        f"{options.repeats} views, {options.optimizer} at {options.learning_rate:g}, mean and standard deviation of "
        f"{options.seeds} seeds, {len(answers)} test images"
    )
    return [
        Result(name, float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, how)
        for name, values in (("fine-tuned", whole), ("fine-tuned, mean per class", by_class))
    ]


def _policy(options: Finetune, view: augment.Policy) -> augment.Policy:
    return augment.Policy(
        image_size=view.image_size,
        crop_scale=options.crop_scale,
        flip_probability=options.flip_probability,
        rand_augment_ops=options.rand_augment_ops,
        rand_augment_magnitude=options.rand_augment_magnitude,
        erase_probability=options.erase_probability,
        mean=view.mean,
        std=view.std,
    )


def _rule(options: Finetune, steps: int, steps_per_epoch: int) -> optax.GradientTransformation:
    # A run shortened for a trial is still to reach its peak.
    warmup = min(round(options.warmup_epochs * steps_per_epoch), steps // 2)
    rate = optax.warmup_cosine_decay_schedule(
        0.0 if warmup else options.learning_rate, options.learning_rate, warmup, steps
    )

    def weights(tree: Any) -> Any:
        return jax.tree.map(lambda a: a.ndim > 1, tree)

    kinds = {"adamw": optax.scale_by_adam(), "sgd": optax.trace(0.9, nesterov=True)}
    clip = [] if options.clip_norm is None else [optax.clip_by_global_norm(options.clip_norm)]
    return optax.chain(
        *clip,
        kinds[options.optimizer],
        optax.add_decayed_weights(options.weight_decay, mask=weights),
        optax.scale_by_learning_rate(rate),
    )


def _batches(
    split: LabelledImages,
    program: FinetuneProgram,
    options: Finetune,
    policy: augment.Policy,
    seed: int,
    cropped: bool,
    pool: ThreadPoolExecutor,
) -> Iterator[dict[str, np.ndarray]]:
    """`program.steps` batches; each pass is a new order, and what does not fill a batch is left out of it."""
    n = program.examples
    for step in range(program.steps):
        epoch, place = divmod(step, program.steps_per_epoch)
        if place == 0:
            order = np.random.default_rng((seed, epoch)).permutation(len(split.labels))
        rows = order[place * n : (place + 1) * n]
        if cropped:
            images = _crops(split, (policy,) * options.repeats, seed, epoch, rows, pool)
        else:
            images = _take(split, rows, pool)
        yield {
            "images": images,
            "labels": np.asarray(split.labels)[rows].astype(np.int32),
            "index": rows.astype(np.int32),
            "epoch": np.full(n, epoch, np.int32),
        }


def _shown(
    split: LabelledImages, view: augment.Policy, cropped: bool, size: int, pool: ThreadPoolExecutor
) -> Iterator[dict[str, np.ndarray]]:
    for start in range(0, len(split.labels), size):
        rows = np.arange(start, min(start + size, len(split.labels)))
        images = _crops(split, (view,), 0, 0, rows, pool)[:, 0] if cropped else _take(split, rows, pool)
        yield {"inputs": images, "index": rows}


def _crops(
    split: LabelledImages,
    policies: tuple[augment.Policy, ...],
    seed: int,
    epoch: int,
    rows: np.ndarray,
    pool: ThreadPoolExecutor,
) -> np.ndarray:
    def crop(row: int) -> np.ndarray:
        return augment.host_crop(split.read(row, 0)[0], policies, seed, epoch, row)

    return np.stack(list(pool.map(crop, rows.tolist())))


def _take(split: LabelledImages, rows: np.ndarray, pool: ThreadPoolExecutor) -> np.ndarray:
    if split.arrays is not None:
        return split.arrays[0][rows]
    return np.stack(list(pool.map(lambda row: split.read(row, 0)[0], rows.tolist())))


def _check(options: Finetune, rows: int, num_classes: int) -> None:
    if options.repeats < 1 or options.batch_size < options.repeats:
        raise ValueError(
            f"batch_size must hold repeats >= 1 views, got {options.batch_size} and {options.repeats}"
        )
    if not options.epochs > 0 or not options.learning_rate > 0 or options.warmup_epochs < 0:
        raise ValueError(
            "epochs and learning_rate must be positive and warmup_epochs at least 0, got "
            f"{options.epochs}, {options.learning_rate} and {options.warmup_epochs}"
        )
    if options.seeds < 1 or options.threads < 1:
        raise ValueError(f"seeds and threads must be at least 1, got {options.seeds} and {options.threads}")
    if options.optimizer not in ("adamw", "sgd"):
        raise ValueError(f"optimizer must be adamw or sgd, got {options.optimizer!r}")
    if rows < 1 or num_classes < 2:
        raise ValueError(f"train must hold an image, of two classes at least, got {rows} and {num_classes}")
