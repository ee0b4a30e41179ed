"""Critics and aggregations of the caller's own, in the poly-view objectives."""

import functools

import brute_force
import cases
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ROWS, WHOLE

from mvcl import losses

POLY_VIEW = [functools.partial(losses.poly_view, negatives_of=of) for of in ("other", "anchor")]


def check(total, by_hand, z, weights, mask):
    """Values are those by hand; on two devices, in blocks, gradients by embeddings and weights are those of one."""
    slopes = functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    (_, values), expected = jax.jit(slopes(total))(z, weights, mask)
    local = slopes(functools.partial(total, axis_name="data", block_size=2))
    split = cases.split(local, ROWS, WHOLE, ROWS, out=((WHOLE, WHOLE), (ROWS, WHOLE)))
    (_, over_devices), found = jax.jit(split)(z, weights, mask)
    for each in (values, over_devices):
        np.testing.assert_allclose(each, by_hand, rtol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, expected)


def test_a_bilinear_critic_and_a_maximum_on_two_devices(x64, rng):
    """With a queue; the critic is not symmetric."""
    z, weights = rng.normal(size=(3, 6, 4)), rng.normal(size=(4, 4))
    mask, extra = cases.some_missing(rng, z.shape[:2]), brute_force.unit(rng.normal(size=(5, 4)))
    largest = functools.partial(jnp.max, axis=0)
    runs = [*POLY_VIEW, functools.partial(losses.sufficient_statistics, normalize_rest=False)]

    def total(z, weights, mask, **options):
        critic = lambda x, y: jnp.einsum("md,de,ne->mn", x, weights, y)  # noqa: E731
        given = {"critic": critic, "aggregation": largest, "extra_negatives": extra}
        found = [f(z, mask=mask, **given, **options) for f in runs]
        return sum(found), found

    units, given = brute_force.unit(z), {"critic": lambda u, v: u @ weights @ v, "extra": extra}
    of_pairs = [
        brute_force.poly_view(units, mask, aggregation=max, negatives_of=of, **given)
        for of in ("other", "anchor")
    ]
    of_rest = brute_force.sufficient_statistics(units, mask, normalize_rest=False, rest=np.max, **given)
    check(total, [*of_pairs, of_rest], z, weights, mask)


@pytest.mark.exhaustive
def test_factor_cl_with_a_network_of_both_vectors_on_two_devices(x64, rng):
    """Both turns; the turn of the critics has no gradient by the embeddings."""
    z, mask = rng.normal(size=(8, 6, 3)), cases.some_missing(rng, (8, 6))

    def loss(z, weight, mask, **options):
        def critic(x, y):
            return jnp.tanh(weight * x.sum(1)[:, None] - 2 * y[None, :, 0]) + x[:, 0, None] * y[None, :, -1]

        run = functools.partial(losses.factor_cl, z, (critic,) * 6, mask=mask, **options)
        turns = [run(turn=t) for t in ("embeddings", "critics")]
        return turns[0] + 2 * turns[1], turns

    units, f = brute_force.unit(z), lambda x, y: np.tanh(0.7 * x.sum() - 2 * y[0]) + x[0] * y[-1]
    by_hand = [brute_force.factor_cl(units, mask, turn=t, f=f) for t in ("embeddings", "critics")]
    check(loss, by_hand, z, 0.7, mask)
    alone = jax.jit(jax.grad(lambda z: loss(z, 0.7, mask)[1][1]))(z)
    assert not np.any(alone)


@pytest.mark.exhaustive
def test_derivatives_of_a_network_of_both_vectors(x64, rng):
    z, inner, outer = rng.normal(size=(3, 3, 2)), rng.normal(size=(2, 4, 2)), rng.normal(size=4)

    def total(z, inner, outer):
        def critic(x, y):
            return jnp.tanh((x @ inner[0].T)[:, None] + (y @ inner[1].T)[None]) @ outer

        return losses.poly_view(z, critic=critic) + losses.sufficient_statistics(z, critic=critic)

    chex.assert_numerical_grads(jax.jit(total), (z, inner, outer), order=1, atol=1e-6, rtol=1e-5, eps=1e-5)
