"""An objective as methods call it: of (k, n, d) views, whatever operands it compares."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from mvcl import losses
from mvcl.losses import Operands

Measures = dict[str, jax.Array]


class OfViews(Protocol):
    """(k, n, d) views to the loss and a dict of scalars for the log.

    Keywords, where the objective takes them: queue (q, d), mask (k, n), weights (k, k) or (k, k, n), key, axis_name.
    """

    def __call__(self, z: jax.Array, /, **extra: Any) -> tuple[jax.Array, Measures]: ...


def of_views(objective: losses.Loss) -> OfViews:
    """The objective of (k, n, d) views: a pair loss compares the first two, one of groups the first half and the last.

    A `queue` is handed on under the name that the objective has for it.
    """
    takes, loss = losses.takes(objective), losses.on_views(objective)
    measured = None if takes.measured is None else partial(takes.measured, **losses.unwrap(objective)[1])

    def value(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, Measures]:
        if "mask" in extra and not takes.mask:
            raise ValueError(
                f"objective {losses.name(objective)} takes no mask, and these examples may lack views; "
                "use objective:mv_infonce, for instance, or data in which every view is there"
            )
        if takes.queue is not None and "queue" in extra:
            extra = {takes.queue if name == "queue" else name: x for name, x in extra.items()}
        return (loss(z, **extra), {}) if measured is None else measured(z, **extra)

    return value


def check(objective: losses.Loss, k: int) -> None:
    """Raise a `ValueError` if the objective cannot take k views."""
    name, operands = losses.name(objective), losses.takes(objective).operands
    if operands is Operands.PAIR and k != 2:
        raise ValueError(
            f"objective {name} compares exactly 2 views, got views.k = {k}; "
            f"for more use objective:all_pairs objective.pair:{name}"
        )
    if operands is Operands.GROUPS and k % 2:
        raise ValueError(
            f"objective {name} compares two groups of k/2 views, so that views.k must be even, got {k}"
        )


def chance_level(
    loss: Callable[[jax.Array], jax.Array], k: int, n: int, d: int, seed: ArrayLike = 0
) -> jax.Array:
    """The value of a loss of (k, n, d) for features that carry nothing about the instance.

    Two encoders carry nothing: a constant one, and one whose views are drawn independently of the input. The
    chance level is the lower of their values, so that a loss below it is information. A loss that repels nothing
    (`byol`) is as low for the constant as for perfect features; there the independent one counts alone.
    """
    views = jax.random.normal(jax.random.key(seed), (k, n, d))
    # Behind a barrier, or the compiler takes the products of ones itself, one by one.
    constant = loss(jax.lax.optimization_barrier(jnp.ones((k, n, d))))
    independent = loss(views)
    perfect = loss(jnp.broadcast_to(views[:1], (k, n, d)))
    repels = constant > perfect + 1e-6 * (1 + jnp.abs(perfect))
    return jnp.where(repels, jnp.minimum(constant, independent), independent)
