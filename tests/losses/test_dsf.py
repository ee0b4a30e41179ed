"""DSF: queues alone, its reduction to InfoNCE, vanishing means and large dimensions."""

import functools

import brute_force
import jax
import numpy as np
import pytest

from mvcl import losses


def test_queue_alone(x64, rng):
    q, k, queue = rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 5, 4)), rng.normal(size=(3, 4))
    z, units = brute_force.unit(np.concatenate([q, k])), brute_force.unit(queue)
    expected = brute_force.dsf(z, np.ones((4, 5), bool), extra=units, in_batch_negatives=False)
    loss = functools.partial(losses.dsf, in_batch_negatives=False)
    np.testing.assert_allclose(loss(q, k, queue), expected, rtol=1e-10)


def test_groups_of_different_size(x64, rng):
    """A mask that hides all but one query is a group of one."""
    q, k = rng.normal(size=(1, 5, 4)), rng.normal(size=(3, 5, 4))
    more, mask = rng.normal(size=(2, 5, 4)), np.ones((6, 5), bool)
    mask[1:3] = False
    z = brute_force.unit(np.concatenate([q, more, k]))
    np.testing.assert_allclose(losses.dsf(q, k), brute_force.dsf(z, mask), rtol=1e-10)


def test_one_view_each_is_info_nce(x64, rng):
    """Jeon 2025, Theorem 1: all concentrations are equal, and 1 / (A κ) is the temperature."""
    q, k = rng.normal(size=(1, 6, 5)), rng.normal(size=(1, 6, 5))
    kappa = 0.95 * (5 - 0.95**2) / (1 - 0.95**2) / 5
    np.testing.assert_allclose(
        losses.dsf(q, k), losses.info_nce(q[0], k[0], temperature=1 / (0.95 * kappa)), rtol=1e-12
    )


def test_vanishing_means(x64, rng):
    q, k = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4, 3))
    q[1] = -q[0]  # the mean is zero: μ = 0, κ = 0
    loss = functools.partial(losses.dsf, mean_resultant="exact")
    value, slopes = jax.jit(jax.value_and_grad(loss, (0, 1)))(q, k)
    assert np.isfinite(value)
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_large_dimension_in_float32(rng):
    """d = 4096, ν = 2047: where the Bessel functions themselves are far below float32."""
    q, k = (rng.normal(size=(2, 6, 4096)).astype(np.float32) for _ in range(2))
    shared = k.copy()
    shared[0] = q[0]  # a positive of 1,700 whose last place is 1.2e-4: it must cancel, the loss is zero
    swapped = shared[:, ::-1]  # and one whose negatives have that size
    for keys in (k, shared, swapped):
        value = losses.dsf(q, keys, normalize_concentration=False)
        with jax.enable_x64(True):
            exact = losses.dsf(q.astype(np.float64), keys.astype(np.float64), normalize_concentration=False)
        np.testing.assert_allclose(value, exact, rtol=1e-5, atol=1e-5)


def test_bad_arguments(rng):
    q = rng.normal(size=(2, 4, 3)).astype(np.float32)
    with pytest.raises(ValueError, match=r"queue must be given with in_batch_negatives=False, got None"):
        losses.dsf(q, q, in_batch_negatives=False)
    with pytest.raises(ValueError, match=r"mean_resultant must be one of 'estimate', 'exact', got 'A'"):
        losses.dsf(q, q, mean_resultant="A")
    with pytest.raises(ValueError, match=r"keys must have the instances.*got \(2, 3, 3\)"):
        losses.dsf(q, q[:, :3])
