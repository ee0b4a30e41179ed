"""The study's objectives as functions of inputs and a network; sums over negatives exact, or on a grid of inputs.

An anchor's sum over negatives, E(x) = Σ_j exp(<f(x), f(x_j)> / temperature), is a smooth function of one number, and
so are every term in x_j and the embedding f. On the grid all are interpolated by cubic polynomials through four nodes,
whose weights do not depend on the parameters: E at the nodes is one (nodes, nodes) matrix of exponentials by the
weights summed over the batch (for sufficient statistics (nodes, M K), whose negatives are no function of one number).
What an anchor's own instance adds is summed term by term. Cost O(M K nodes) and not O(M² K²); the error falls with the
fourth power of the distance of nodes.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from mvcl import _numerics, losses

Embed = Callable[[jax.Array], jax.Array]
_TINY = 1e-30


@losses.declare()
def of_inputs(x: jax.Array, *, embed: Embed, objective: losses.Loss) -> jax.Array:
    """An objective of (M, K, d) embeddings as a function of the inputs.

    Returns:
      Scalar.
    """
    return objective(embed(x.reshape(-1)).reshape(*x.shape, -1))


@losses.declare()
def geometric_on_grid(
    x: jax.Array, *, embed: Embed, temperature: float = 0.1, nodes: int = 64, reach: float = 6.0
) -> jax.Array:
    """`poly_view` with aggregation "geometric", its sums over negatives on a grid.

    Returns:
      Scalar.
    """
    likelihood, k, n = _log_likelihood(_grid(x, embed, temperature, nodes, reach))
    return -jnp.sum(jnp.where(_others(k)[..., None], likelihood, 0)) / (k * (k - 1) * n)


@losses.declare()
def arithmetic_on_grid(
    x: jax.Array, *, embed: Embed, temperature: float = 0.1, nodes: int = 64, reach: float = 6.0
) -> jax.Array:
    """`poly_view` with aggregation "arithmetic", its sums over negatives on a grid; see `geometric_on_grid`."""
    likelihood, k, _ = _log_likelihood(_grid(x, embed, temperature, nodes, reach))
    mean = logsumexp(likelihood, axis=1, where=_others(k)[..., None]) - math.log(k - 1)
    return -jnp.mean(mean)


@losses.declare()
def sufficient_statistics_on_grid(
    x: jax.Array, *, embed: Embed, temperature: float = 0.1, nodes: int = 64, reach: float = 6.0
) -> jax.Array:
    """`sufficient_statistics`, its sums over negatives on a grid; see `geometric_on_grid`."""
    grid = _grid(x, embed, temperature, nodes, reach)
    z = grid.z
    q = temperature**-0.5 * _numerics.unit(z.sum(0)[None] - z)
    energy = jnp.exp(grid.at_nodes @ q.reshape(x.size, -1).T - grid.top).sum(1, keepdims=True)
    own = jnp.einsum("aid,gid->gai", z, q)
    positive = jnp.sum(z * q, axis=-1)  # (k, n)
    return jnp.mean(jnp.logaddexp(positive, _without(grid.total(energy)[..., 0], own)) - positive)


@losses.declare()
def multi_crop_on_grid(
    x: jax.Array, *, embed: Embed, temperature: float = 0.1, nodes: int = 64, reach: float = 6.0
) -> jax.Array:
    """`all_pairs` of `info_nce` over ordered pairs, its sums over negatives on a grid; see `geometric_on_grid`."""
    grid = _grid(x, embed, temperature, nodes, reach)
    k, n = x.shape
    of_view = grid.weights.reshape(k, n, nodes).sum(1)  # (k, nodes)
    every = jnp.moveaxis(grid.total(grid.kernel() @ of_view.T), -1, 1)  # (k anchors, k views, n)
    terms = jnp.mean(every - grid.same(), axis=-1)
    return jnp.sum(jnp.where(_others(k), terms, 0)) / (k * (k - 1))


class _Grid(NamedTuple):
    """A batch on a grid.

    Attributes:
      at_nodes: (nodes, d) unit vectors by the root of the temperature.
      weights: (k n, nodes), what interpolates at each input.
      z: (k, n, d), interpolated.
      top: the largest inner product there is.
    """

    at_nodes: jax.Array
    weights: jax.Array
    z: jax.Array
    top: float

    def total(self, energy: jax.Array) -> jax.Array:
        """Sums at the nodes (nodes, c), to their logarithms at the batch's inputs (k, n, c)."""
        k, n, _ = self.z.shape
        return (self.weights @ jnp.log(jnp.maximum(energy, _TINY))).reshape(k, n, -1) + self.top

    def kernel(self) -> jax.Array:
        """(nodes, nodes) exponentials of the nodes' inner products."""
        return jnp.exp(self.at_nodes @ self.at_nodes.T - self.top)

    def same(self) -> jax.Array:
        """(k, k, n) inner products of an instance's views."""
        return jnp.einsum("aid,bid->abi", self.z, self.z)


def _grid(x: jax.Array, embed: Embed, temperature: float, nodes: int, reach: float) -> _Grid:
    at_nodes = temperature**-0.5 * _numerics.unit(embed(jnp.linspace(-reach, reach, nodes)))
    weights = _cubic_weights(x.reshape(-1), nodes, reach)
    return _Grid(at_nodes, weights, (weights @ at_nodes).reshape(*x.shape, -1), 1 / temperature)


def _log_likelihood(grid: _Grid) -> tuple[jax.Array, int, int]:
    """[α, β, i], of picking view α of instance i for its view β among the negatives; k and n."""
    k, n, _ = grid.z.shape
    every = grid.total(grid.kernel() @ grid.weights.sum(0)[:, None])[..., 0]
    same = grid.same()
    negative = _without(every, same)  # (k, n): by β
    return same - jnp.logaddexp(same, negative[None]), k, n


def _without(every: jax.Array, own: jax.Array) -> jax.Array:
    """log(e^every - Σ_γ e^own): the negatives without the anchor's own instance."""
    share = jnp.exp(logsumexp(own, axis=0) - every)
    return every + jnp.log1p(-jnp.minimum(share, 1 - 1e-6))


def _others(k: int) -> np.ndarray:
    """(k, k), False on the diagonal."""
    return ~np.eye(k, dtype=bool)


def _cubic_weights(x: jax.Array, nodes: int, reach: float) -> jax.Array:
    """(m, nodes): row j interpolates at x[j] by the cubic through the four nodes around it."""
    place = (jnp.clip(x, -reach, reach) + reach) * ((nodes - 1) / (2 * reach))
    # Within a cell of the border the outer node is missing; no batch's draws come there.
    place = jnp.clip(place, 1.0, nodes - 2.0)
    t = jnp.abs(place[:, None] - jnp.arange(nodes, dtype=x.dtype)[None])
    near = (1 - t * t) * (2 - t) / 2
    far = (1 - t) * (2 - t) * (3 - t) / 6
    return jnp.where(t < 1, near, jnp.where(t < 2, far, 0))
