"""M3G against a plain float64 solver that holds the tensor, closed forms and finite differences."""

import itertools
from functools import partial

import jax
import numpy as np
import pytest
from brute_force import COSTS, matching_gap

from mvcl.losses import all_pairs, m3g, m3g_pair, m3g_with_status

PAIRS = ((0, 1), (0, 2), (1, 2))


def unit(rng, k, n, d=3):
    z = rng.normal(size=(k, n, d))
    return z / np.linalg.norm(z, axis=-1, keepdims=True)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize(
    ("k", "n", "epsilon"), [(2, 7, 0.1), (3, 5, 0.2), (4, 4, 0.5), (5, 3, 0.2), (6, 2, 1.0)]
)
def test_equals_eq_8_summed_over_the_tensor(x64, rng, k, n, epsilon, cost):
    z = unit(rng, k, n)
    expected, _ = matching_gap(z, epsilon, COSTS[cost])
    value = m3g(3 * z, epsilon, cost, 1e-12, 5000)  # 3 z: normalised by the loss
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    assert expected > 0


@pytest.mark.parametrize("k", [2, 3, 4])
def test_cost_scale_of_algorithm_2(x64, rng, k):
    """Algorithm 2 sums the squared distances of all pairs and multiplies them by (2/(k-1))²."""
    n, epsilon = 3, 2.0
    z = unit(rng, k, n)

    def printed(points):
        distances = [np.sum((points[l] - points[m]) ** 2) for l in range(k) for m in range(l + 1, k)]
        return (2 / (k - 1)) ** 2 * sum(distances)

    expected, _ = matching_gap(z, epsilon, printed)
    scale = (2 * k / (k - 1)) ** 2
    value, out = m3g_with_status(z, epsilon=epsilon, cost_scale=scale, tolerance=1e-12, max_iterations=5000)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(value, scale * m3g(z, epsilon / scale, tolerance=1e-12, max_iterations=5000))
    np.testing.assert_allclose(out.epsilon, epsilon)
    np.testing.assert_allclose(np.mean(out.costs.diagonal()), np.mean([printed(z[:, i]) for i in range(n)]))
    with pytest.raises(ValueError, match="cost_scale"):
        m3g(z, cost_scale=0.0)


def test_pairs_of_views_are_matched_by_themselves(x64, rng):
    z, solver = unit(rng, 3, 5), {"tolerance": 1e-12, "max_iterations": 5000}
    expected = np.mean([matching_gap(z[[l, m]], 0.1, COSTS["circular_variance"])[0] for l, m in PAIRS])
    objective = all_pairs(partial(m3g_pair, epsilon=0.1, **solver))
    value, slope = jax.value_and_grad(objective)(z)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    step = 1e-5 * rng.normal(size=z.shape)
    np.testing.assert_allclose(
        np.sum(slope * step), (objective(z + step) - objective(z - step)) / 2, rtol=1e-5
    )
    # with the weight that a pair has in the cost of k views, joint matching has no larger gap
    of_pairs = all_pairs(partial(m3g_pair, epsilon=0.1, cost_scale=4 / 9, **solver), reduction="sum")
    assert m3g(z, 0.1, **solver) <= of_pairs(z)


@pytest.mark.parametrize("k", [2, 4])
def test_gradient_is_that_of_the_truth_minus_the_plan(x64, rng, k):
    n, epsilon = 4, 0.2
    z = unit(rng, k, n)
    _, plan = matching_gap(z, epsilon, COSTS["circular_variance"])
    truth = np.zeros_like(plan)
    truth[(np.arange(n),) * k] = 1 / n
    expected = np.zeros_like(z)  # d(1 - ||mean||²)/dz_l = -(2/k) mean, entry by entry
    for index in itertools.product(range(n), repeat=k):
        mean = np.mean([z[l, i] for l, i in enumerate(index)], axis=0)
        for l, i in enumerate(index):
            expected[l, i] -= (truth - plan)[index] * 2 / k * mean
    gradient = jax.grad(lambda z: m3g(z, epsilon, tolerance=1e-12, max_iterations=5000, normalize=False))(z)
    np.testing.assert_allclose(gradient, expected, atol=1e-10)


@pytest.mark.parametrize("cost", COSTS)
def test_gradient_in_embeddings_and_epsilon_is_that_of_finite_differences(x64, rng, cost):
    z, direction = rng.normal(size=(2, 4, 3, 3))
    direction = np.array(direction)

    def loss(t, epsilon):
        return m3g(z + t * direction, epsilon, cost, 1e-12, 5000)

    step = 1e-5
    dt, de = jax.grad(loss, argnums=(0, 1))(0.0, 0.2)
    np.testing.assert_allclose(dt, (loss(step, 0.2) - loss(-step, 0.2)) / (2 * step), rtol=1e-6)
    np.testing.assert_allclose(de, (loss(0.0, 0.2 + step) - loss(0.0, 0.2 - step)) / (2 * step), rtol=1e-6)


def test_two_views_agree_with_otts_sinkhorn(x64, rng):
    from ott.geometry import costs, pointcloud  # after mvcl, which silences what ott's import warns of
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    z, epsilon = unit(rng, 2, 12, 5), 0.05
    geometry = pointcloud.PointCloud(z[0], z[1], cost_fn=costs.SqEuclidean(), epsilon=4 * epsilon)
    with jax.numpy_rank_promotion("allow"):
        problem = linear_problem.LinearProblem(geometry)
        solved = sinkhorn.Sinkhorn(threshold=1e-12, max_iterations=20000)(problem)
        plan = np.asarray(solved.matrix)
    # ||x - y||² is k² = 4 times the circular variance; ott's value counts log P against the product measure
    smallest = np.sum(plan * geometry.cost_matrix) / 4 + epsilon * np.sum(plan * (np.log(plan) - 1))
    truth = np.mean([COSTS["circular_variance"](z[:, i]) for i in range(12)]) - epsilon * (np.log(12) + 1)
    np.testing.assert_allclose(
        m3g(z, epsilon, tolerance=1e-10, max_iterations=5000), truth - smallest, atol=1e-8
    )


def test_vanishes_when_the_truth_is_the_plan(x64):
    # orthogonal instances, aligned views: the smaller epsilon, the closer the plan is to the truth
    z = np.broadcast_to(np.eye(5), (3, 5, 5))
    values = [float(m3g(z, epsilon, tolerance=1e-10, max_iterations=3000)) for epsilon in (0.2, 0.05, 0.01)]
    assert values[0] > values[1] > values[2]
    assert 0 <= values[2] < 1e-9


@pytest.mark.parametrize("max_iterations", [1, 100])
def test_is_not_negative_even_before_it_has_converged(rng, max_iterations):
    for k, epsilon in ((2, 0.01), (3, 0.05), (4, 1.0)):
        z = np.float32(unit(rng, 1, 8) + 0.1 * rng.normal(size=(k, 8, 3)))
        assert m3g(z, epsilon, max_iterations=max_iterations) >= -1e-6


def test_invariant_to_a_common_permutation_and_to_rotation(x64, rng):
    z = unit(rng, 3, 6, 4)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    options = {"tolerance": 1e-11, "max_iterations": 3000}
    value = m3g(z, **options)
    np.testing.assert_allclose(m3g(z[:, rng.permutation(6)], **options), value, rtol=1e-8)
    np.testing.assert_allclose(m3g(z @ rotation, **options), value, rtol=1e-8)
    assert (
        abs(m3g(np.stack([z[0], z[1][::-1], z[2]]), **options) - value) > 1e-3
    )  # not to one of a single view


def test_status_comes_with_the_loss(rng):
    z = np.float32(unit(rng, 3, 8))
    loss, out = m3g_with_status(z, epsilon=0.01, max_iterations=2)
    assert not out.converged
    assert out.error > 1e-3
    assert out.n_iters == 2
    np.testing.assert_array_equal(loss, m3g(z, 0.01, max_iterations=2))
    assert m3g_with_status(z, epsilon=0.5)[1].converged


def test_epsilon_scaling_ends_at_epsilon(rng):
    z = np.float32(unit(rng, 3, 8))
    plain = m3g(z, 0.02, tolerance=1e-4, max_iterations=2000)
    scaled, out = m3g_with_status(
        z, epsilon=0.02, tolerance=1e-4, max_iterations=2000, epsilon_init=20.0, epsilon_decay=0.8
    )
    assert out.converged
    np.testing.assert_allclose(scaled, plain, rtol=1e-4)


def test_bad_arguments_are_refused():
    z = np.ones((3, 4, 2), np.float32)
    for options, message in [
        ({"mask": np.ones((3, 5), bool)}, r"mask must have shape \(3, 4\), got \(3, 5\)"),
        ({"mask": np.ones((3, 4), bool), "cost": lambda s: s.sum()}, "mask of m3g, must be None for a cost"),
        ({"epsilon": 0.0}, "epsilon must be positive, got 0.0"),
        ({"cost": "cosine"}, "cost must be one of 'circular_variance', 'circular_standard_deviation'"),
        ({"max_iterations": 0}, "max_iterations must be a whole number >= 1, got 0"),
        ({"epsilon_init": 0.5}, "epsilon_init must be >= 1"),
        ({"epsilon_init": 5.0}, "epsilon_decay must be < 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            m3g(z, **options)
    with pytest.raises(ValueError, match=r"k >= 2.*got \(1, 4, 2\)"):
        m3g(z[:1])
    with pytest.raises(ValueError, match=r"2.62e\+05 tuples.*5.24e\+05 operations.*n <= 46 with 3 views"):
        m3g(np.ones((3, 64, 2), np.float32), max_operations=2e5)


def test_a_full_mask_changes_nothing(rng):
    """Not a bit of the loss; gradients to the last rounding."""
    for k, n in ((2, 9), (3, 6), (4, 12)):
        z = np.float32(unit(rng, k, n))
        loss = jax.jit(jax.value_and_grad(m3g))
        value, gradient = loss(z)
        masked, of_masked = jax.jit(jax.value_and_grad(partial(m3g, mask=np.ones((k, n), bool))))(z)
        assert masked == value
        np.testing.assert_allclose(of_masked, gradient, atol=1e-7)


def test_loss_of_missing_views_is_a_gap_and_ignores_what_is_missing(x64, rng):
    z, options = unit(rng, 3, 6), {"tolerance": 1e-12, "max_iterations": 3000}
    mask = np.ones((3, 6), bool)
    mask[0, 1] = mask[2, [1, 4]] = mask[:, 5] = False
    loss = partial(m3g, epsilon=0.1, mask=mask, **options)
    value = loss(z)
    assert value > 0
    np.testing.assert_allclose(loss(np.where(mask[..., None], z, 7.0)), value, rtol=1e-12)
    # an instance without a view does not count
    np.testing.assert_allclose(m3g(z[:, :5], epsilon=0.1, mask=mask[:, :5], **options), value, rtol=1e-12)
    # missing views cannot be told from one another: no loss for aligned, orthogonal instances
    aligned = np.broadcast_to(np.eye(6), (3, 6, 6))
    assert 0 <= loss(aligned, epsilon=0.005) < 1e-6
    # a view that no instance has is no view: the pair's cost has the factor of three views
    none = np.stack([np.ones(6, bool), np.ones(6, bool), np.zeros(6, bool)])
    of_two = m3g(z[:2], epsilon=0.1, cost_scale=4 / 9, **options)
    np.testing.assert_allclose(m3g(z, epsilon=0.1, mask=none, **options), of_two, rtol=1e-9)


def test_instances_without_any_view_change_nothing(x64, rng):
    """And no instance at all is no loss."""
    z = unit(rng, 1, 10) + 0.3 * rng.normal(size=(3, 10, 3))
    mask = np.ones((3, 10), bool)
    mask[0, 1] = mask[2, 2] = mask[:, 6:] = False
    options = {"epsilon": 0.2, "tolerance": 1e-8, "max_iterations": 1000}
    expected = m3g(z[:, :6], mask=mask[:, :6], **options)
    np.testing.assert_allclose(m3g(z, mask=mask, **options), expected, rtol=1e-6)
    for run in (m3g, jax.jit(m3g, static_argnames="epsilon")):
        np.testing.assert_allclose(run(z, epsilon=0.2, mask=np.zeros((3, 10), bool)), 0, atol=1e-12)


def test_accuracy_of_the_matching_with_missing_views(rng):
    z = np.broadcast_to(np.eye(6, dtype=np.float32), (3, 6, 6))
    mask = np.ones((3, 6), bool)
    mask[0, [1, 2, 4]] = mask[2, [1, 3]] = False
    _, out = m3g_with_status(z, epsilon=0.01, mask=mask)
    assert out.matching_accuracy(present=mask) == 1
    with pytest.raises(ValueError, match="present must hold boolean vectors"):
        out.matching_accuracy(present=mask[:2])
