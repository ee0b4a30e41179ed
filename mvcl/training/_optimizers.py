"""Optimisers and their schedules, from optax."""

import dataclasses
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import keystr, tree_map_with_path

from mvcl import _checks

Rule: TypeAlias = optax.GradientTransformation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Options of all optimisers: linear warm-up, then cosine decay."""

    learning_rate: float = 1e-3
    """Peak learning rate, for a batch of `reference_batch` examples."""
    end_learning_rate: float = 0.0
    """Learning rate of the last step, whatever the batch: reference_batch does not scale it."""
    reference_batch: int | None = None
    """The peak learning rate is multiplied by n / reference_batch (256 in most papers); None does not scale it."""
    scaling: Literal["linear", "sqrt"] = "linear"
    """With reference_batch: multiply by that ratio, or by its square root, the rule for Adam (Malladi et al. 2022);
    betas are not scaled."""
    warmup_epochs: float = 0.0
    """Epochs of linear warm-up from 0; at most half the run."""
    warmup_share: float = 0.0
    """Linear warm-up as a share of the run, at most 0.5; instead of warmup_epochs."""
    weight_decay: float = 0.0
    """Weight decay at the start."""
    decays: Literal["matrices", "all"] = "matrices"
    """What is decayed: kernels, and the class token and position embeddings of a ViT (matrices), not biases and the
    parameters of norms, also where those of several networks are stacked; or all, as PyTorch's optimisers do that are
    given all parameters."""
    end_weight_decay: float | None = None
    """Weight decay at the end, reached by a cosine; None keeps it constant."""
    clip_norm: float | None = None
    """Gradients with a larger global norm are scaled to this norm; None does not clip."""
    rates: tuple[str, ...] = ()
    """Factors of the learning rate of parts, PART=FACTOR by dotted name, of which the last that fits counts:
    `encoder=0.1 encoder.norm=0`. 0 keeps the parameters as they are; statistics of batch norms go on."""

    def transformation(self, learning_rate: optax.Schedule, decay: Rule) -> Rule:
        """The update rule with this schedule; `decay` adds the decayed parameters to its input."""
        raise NotImplementedError(f"{type(self).__name__} is an interface; use {', '.join(OPTIMIZERS)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sgd(Optimizer):
    """Stochastic gradient descent with momentum; weight decay is part of the gradient."""

    learning_rate: float = 0.1
    """Peak learning rate, for a batch of `reference_batch` examples."""
    momentum: float = 0.9
    """Share of a step that the next one keeps."""

    def transformation(self, learning_rate: optax.Schedule, decay: Rule) -> Rule:
        return optax.chain(decay, optax.trace(self.momentum), optax.scale_by_learning_rate(learning_rate))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    b1: float = 0.9
    """Decay of the first moment."""
    b2: float = 0.999
    """Decay of the second moment."""
    eps: float = 1e-8
    """Added to the root of the second moment."""

    def transformation(self, learning_rate: optax.Schedule, decay: Rule) -> Rule:
        adam = optax.scale_by_adam(self.b1, self.b2, self.eps)
        return optax.chain(adam, decay, optax.scale_by_learning_rate(learning_rate))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lars(Optimizer):
    """LARS (You et al. 2017); biases and norms are neither decayed nor rescaled."""

    learning_rate: float = 0.3
    """Peak learning rate, for a batch of `reference_batch` examples."""
    reference_batch: int | None = 256
    """The peak learning rate is multiplied by n / reference_batch; None does not scale it."""
    momentum: float = 0.9
    """Momentum, applied after the learning rate as in the original."""
    trust_coefficient: float = 0.001
    """Ratio of update norm to parameter norm, per layer."""
    clip: bool = False
    """Take the smaller of two steps, per layer: a trust_coefficient of the parameter norm, whatever the learning rate,
    or that of SGD. This is LARC, `clip_lr` in solo-learn."""

    def transformation(self, learning_rate: optax.Schedule, decay: Rule) -> Rule:
        ratio = optax.scale_by_trust_ratio(trust_coefficient=self.trust_coefficient)
        if self.clip:
            ratio = _clip_by_trust_ratio(self.trust_coefficient, learning_rate)
        rate, momentum = optax.scale_by_learning_rate(learning_rate), optax.trace(self.momentum)
        return optax.chain(decay, optax.masked(ratio, decay_mask), rate, momentum)


def _clip_by_trust_ratio(trust: float, learning_rate: optax.Schedule) -> Rule:
    """Multiplies a gradient g of parameters p by min(1, trust |p| / (learning rate |g|)); by 1 where p is zero."""

    def update(gradient: Any, state: optax.ScaleByScheduleState, params: Any) -> Any:
        def clipped(g: jax.Array, p: jax.Array) -> jax.Array:
            length = jnp.linalg.norm(p.ravel())
            step = learning_rate(state.count) * jnp.linalg.norm(g.ravel())
            longer = (length > 0) & (step > trust * length)
            return g * jnp.where(longer, trust * length / jnp.where(longer, step, 1), 1)

        return jax.tree.map(clipped, gradient, params), optax.ScaleByScheduleState(state.count + 1)

    start = optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))
    return optax.GradientTransformation(lambda params: start, update)


OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {"sgd": Sgd, "adamw": AdamW, "lars": Lars}


def build(
    optimizer: Optimizer, *, examples: int, steps: int, steps_per_epoch: int, parts: tuple[str, ...] = ()
) -> tuple[Rule, optax.Schedule]:
    """The update rule of a run of so many steps with n = `examples` in a batch, and its learning-rate schedule.

    The rule has a state for each of `parts`, first keys of the parameters, so that they can `restart`.
    """
    _checks.fields("optimizer", optimizer, learning_rate="(0, inf)", weight_decay="[0, inf)")
    _checks.fields("optimizer", optimizer, warmup_epochs="[0, inf)", warmup_share="[0, 0.5]")
    if optimizer.warmup_share and optimizer.warmup_epochs:
        raise ValueError("optimizer.warmup_share must be 0 with optimizer.warmup_epochs, got both")
    asked = optimizer.warmup_epochs * steps_per_epoch + optimizer.warmup_share * steps
    warmup = min(round(asked), steps // 2)  # a shortened run still reaches its peak learning rate
    highest = peak(optimizer, examples)
    first, last = 0.0 if warmup else highest, optimizer.end_learning_rate
    learning_rate = optax.warmup_cosine_decay_schedule(first, highest, warmup, steps, last)
    start = optimizer.weight_decay
    end = start if optimizer.end_weight_decay is None else optimizer.end_weight_decay
    decay = optax.add_decayed_weights(
        lambda step: end + (start - end) * 0.5 * (1 + jnp.cos(math.pi * step / steps))
    )
    decay = decay if optimizer.decays == "all" else optax.masked(decay, decay_mask)
    rule = optimizer.transformation(learning_rate, decay)
    if parts:
        first_keys = partial(tree_map_with_path, lambda path, _: path[0].key)
        rule = optax.partition(dict.fromkeys(parts, rule), first_keys)
    if optimizer.rates:
        rule = optax.chain(rule, _at_rates(optimizer.rates))
    if optimizer.clip_norm is not None:  # one norm over all parts
        rule = optax.chain(optax.clip_by_global_norm(optimizer.clip_norm), rule)
    return rule, learning_rate


def _at_rates(rates: tuple[str, ...]) -> Rule:
    """Multiplies the update of each part by its factor; `ValueError` if there is no such part."""
    pairs = [text.partition("=")[::2] for text in rates]

    def factors(tree: Any) -> Any:
        leaves, structure = jax.tree.flatten_with_path(tree)
        names = ["." + ".".join(re.findall(r"\['?(\w+)'?\]", keystr(path))) + "." for path, _ in leaves]
        if lacking := [part for part, _ in pairs if not any(f".{part}." in name for name in names)]:
            there = ", ".join(sorted({keystr(path[:2]) for path, _ in leaves}))
            raise ValueError(f"optimizer.rates: no parameter is of {lacking[0]!r}; there are {there}")
        fits = ([value for part, value in pairs if f".{part}." in name] for name in names)
        return jax.tree.unflatten(structure, [float(values[-1]) if values else 1.0 for values in fits])

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        of = factors(updates)
        return jax.tree.map(lambda u, by: u * by if by else jnp.zeros_like(u), updates, of), state

    return optax.GradientTransformation(lambda params: (factors(params), optax.EmptyState())[1], update)


def constant(optimizer: Optimizer) -> bool:
    """Whether the update of a step does not depend on the number of steps of the run."""
    same = optimizer.reference_batch is None and optimizer.end_learning_rate == optimizer.learning_rate
    return same and not optimizer.warmup_share and optimizer.end_weight_decay is None


def peak(optimizer: Optimizer, examples: int) -> float:
    """The peak learning rate for a batch of so many examples."""
    ratio = examples / optimizer.reference_batch if optimizer.reference_batch else 1.0
    return optimizer.learning_rate * {"linear": ratio, "sqrt": math.sqrt(ratio)}[optimizer.scaling]


_SPARED = re.compile(r"\['(bias|scale)'\](\.value)?$")
decay_mask = partial(tree_map_with_path, lambda path, x: x.ndim > 1 and not _SPARED.search(keystr(path)))
"""Mask of decayed parameters: True for two or more dimensions, but for a `bias` and the `scale` of a norm."""


def restart(rule: Rule, state: dict[str, Any], parts: tuple[str, ...]) -> dict[str, Any]:
    """The state with new moments for these parts; the schedules of learning rate and weight decay go on."""

    def is_schedule(x: Any) -> bool:  # a state that has a count and no moments
        return getattr(x, "_fields", None) == ("count",)

    def renewed(new: Any, old: Any) -> Any:
        if not isinstance(old, optax.PartitionState):
            return old
        keep = partial(jax.tree.map, lambda n, o: o if is_schedule(o) else n, is_leaf=is_schedule)
        inner = {name: keep(new.inner_states[name], old.inner_states[name]) for name in parts}
        return old._replace(inner_states={**old.inner_states, **inner})

    by_part = partial(jax.tree.map, is_leaf=lambda x: isinstance(x, optax.PartitionState))
    return state | {"opt": by_part(renewed, rule.init(state["params"]), state["opt"])}
