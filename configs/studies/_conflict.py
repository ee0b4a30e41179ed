"""How far the pair terms of a view pull apart: the cosines between their gradients (Koromilas 2025, Fig. 2 and L1)."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import losses
from mvcl.studies import Values

MEASURES = ("gradient cosine", "conflicting gradients", "gradient variance")
"""What `conflict` measures, of three views or more."""
Pair = Callable[[jax.Array, jax.Array], jax.Array]
NT_XENT: Pair = partial(losses.nt_xent, temperature=0.5)  # the pair loss of the paper's experiments


def conflict(z: np.ndarray, pair: Pair = NT_XENT) -> Values:
    """How the gradients by the first view of the losses of this view and each of the others agree.

    Koromilas 2025 (arXiv 2507.06979), Section III-F: the gradients by U_i1 of L_pair([U_1, U_2]) and of L_pair([U_1,
    U_3]) "may point in different directions". Views that are drawn alike have the same expected cosine whatever their
    number; the mean of k - 1 terms is shorter by averaging alone, which is no conflict.

    Args:
      z: (k, n, d) embeddings, projected onto the unit sphere first; gradients are those of the projected vectors.
      pair: a loss of two views, each (n, d), that projects onto the sphere.

    Returns:
      "gradient cosine", the mean over instances and pairs of terms; "conflicting gradients", the share of them whose
      cosine is below 0; "gradient variance", the mean squared distance of the k - 1 gradients of an instance from
      their mean by the mean square of that. Nothing of fewer than three views, whose first view has one term.
    """
    values = _conflict(jnp.asarray(z), pair) if len(z) > 2 else ()
    return {name: float(value) for name, value in zip(MEASURES, values)}


@partial(jax.jit, static_argnums=1)
def _conflict(z: jax.Array, pair: Pair) -> tuple[jax.Array, ...]:
    first, *others = z / jnp.linalg.norm(z, axis=-1, keepdims=True)
    gradients = jax.vmap(lambda other: jax.grad(pair)(first, other))(jnp.stack(others))  # (k - 1, n, d)
    unit = gradients / jnp.linalg.norm(gradients, axis=-1, keepdims=True)
    left, right = jnp.triu_indices(len(others), 1)
    cosines = jnp.sum(unit[left] * unit[right], axis=-1)
    mean = gradients.mean(0, keepdims=True)
    variance = jnp.sum((gradients - mean) ** 2, -1).mean() / jnp.sum(mean**2, -1).mean()
    return cosines.mean(), (cosines < 0).mean(), variance
