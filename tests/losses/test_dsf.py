"""DSF: queues alone, its reduction to InfoNCE, its range, what it measures, vanishing means and large dimensions."""

import functools

import brute_force
import jax
import numpy as np
import pytest
from scipy import special

from mvcl import losses


@pytest.mark.parametrize("queue_concentration", ["own", "batch_mean"])
def test_queue_alone(x64, rng, queue_concentration):
    """Rows of the queue are means of unit vectors; one longer than 1 counts as a unit vector."""
    q, k = rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 5, 4))
    queue = brute_force.unit(rng.normal(size=(6, 3, 4))).mean(1)
    queue[0] *= 3 / np.linalg.norm(queue[0])
    rows = np.concatenate([brute_force.unit(queue[:1]), queue[1:]])
    options = {"in_batch_negatives": False, "queue_concentration": queue_concentration}
    z = brute_force.unit(np.concatenate([q, k]))
    expected = brute_force.dsf(z, np.ones((4, 5), bool), extra=rows, **options)
    np.testing.assert_allclose(losses.dsf(q, k, queue, **options), expected, rtol=1e-10)


def test_groups_of_different_size(x64, rng):
    """A mask that hides all but one query is a group of one."""
    q, k = rng.normal(size=(1, 5, 4)), rng.normal(size=(3, 5, 4))
    more, mask = rng.normal(size=(2, 5, 4)), np.ones((6, 5), bool)
    mask[1:3] = False
    z = brute_force.unit(np.concatenate([q, more, k]))
    np.testing.assert_allclose(losses.dsf(q, k), brute_force.dsf(z, mask), rtol=1e-10)


@pytest.mark.parametrize("normalize_concentration", [True, False])
@pytest.mark.parametrize("mean_resultant", ["exact", "estimate"])
def test_one_view_each_is_info_nce(x64, rng, mean_resultant, normalize_concentration):
    """Jeon 2025, Theorem 1: all concentrations are equal, and A_p(κ) κ = 1 / temperature; the default's A is R."""
    q, k = rng.normal(size=(1, 6, 5)), rng.normal(size=(1, 6, 5))
    kappa = 0.95 * (5 - 0.95**2) / (1 - 0.95**2) / (5 if normalize_concentration else 1)
    a = special.iv(2.5, kappa) / special.iv(1.5, kappa) if mean_resultant == "exact" else 0.95
    options = {"mean_resultant": mean_resultant, "normalize_concentration": normalize_concentration}
    np.testing.assert_allclose(
        losses.dsf(q, k, **options), losses.info_nce(q[0], k[0], temperature=1 / (a * kappa)), rtol=1e-12
    )


def groups_with(rng, cosines, d, length=1.0):
    """Two unit vectors whose mean has this length, along directions with these cosines to the first axis."""
    along = np.zeros((len(cosines), d))
    along[:, 0], along[:, 1] = cosines, np.sqrt(1 - np.square(cosines))
    off = rng.normal(size=(len(cosines), d))
    off -= (off * along).sum(1, keepdims=True) * along
    off *= np.sqrt(1 - length**2) / np.linalg.norm(off, axis=1, keepdims=True)
    return np.stack([length * along + off, length * along - off])


@pytest.mark.parametrize(("mean_resultant", "expected"), [("estimate", -5.64), ("exact", 0.24)])
def test_the_default_is_no_divergence(x64, rng, mean_resultant, expected):
    """The number in the docstring: at d = 128, equal directions, lengths 0.8 and 1; a divergence is not negative."""
    z = np.concatenate([groups_with(rng, [1.0, -1.0], 128, 0.8), groups_with(rng, [1.0, -1.0], 128)])
    _, measures = measured(mean_resultant=mean_resultant)(z)
    np.testing.assert_allclose(-measures["positive_similarity"], expected, atol=0.005)


@pytest.mark.parametrize(
    ("options", "lowest"),
    [
        ({"mean_resultant": "exact"}, 6.86),
        ({"mean_resultant": "exact", "normalize_concentration": False}, 0.0),
        ({}, 0.00004),
    ],
)
def test_range_of_the_similarity(x64, rng, options, lowest):
    """The numbers in the docstring: all positives at cosine 1, all 4,096 negatives at -1, at d = 128."""
    z, queue = groups_with(rng, [1.0, 1.0], 128), np.zeros((4096, 128))
    queue[:, 0] = -1
    loss = functools.partial(losses.dsf, in_batch_negatives=False, **options)
    np.testing.assert_allclose(loss(z, z, queue), lowest, atol=0.005 if lowest > 1 else 5e-6)
    np.testing.assert_allclose(loss(z, z, -queue), np.log(4097), rtol=1e-9)
    assert round(float(np.log(4097)), 2) == 8.32


def measured(**options):
    return losses.measured_on_views(functools.partial(losses.dsf, **options))


def test_temperature_divides_the_similarity(x64, rng):
    """Values are compared with loops by test_values; this is its derivative, traced, and that of the measures."""
    z, queue = rng.normal(size=(4, 5, 4)), rng.normal(size=(3, 4))
    run = jax.jit(lambda t: measured(temperature=t)(z, queue=queue))
    slope = jax.jit(jax.grad(lambda t: run(t)[0]))(0.9)
    np.testing.assert_allclose(slope, (run(0.9 + 1e-6)[0] - run(0.9 - 1e-6)[0]) / 2e-6, rtol=1e-7)
    (_, warm), (_, cold) = run(1.0), run(0.5)
    for name in ("positive_similarity", "negative_similarity"):
        np.testing.assert_allclose(cold[name], 2 * warm[name], rtol=1e-12)
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        losses.dsf(z[:2], z[2:], temperature=0.0)


@pytest.mark.parametrize("in_batch_negatives", [True, False])
def test_measures(x64, rng, in_batch_negatives):
    """R, κ, s+ and s- by loops; on several devices as on one."""
    n, d = 8, 4
    z, mask = rng.normal(size=(4, n, d)), np.ones((4, n), bool)
    mask[:2, 1] = mask[2:, 2] = mask[0, 3] = False
    queue = brute_force.unit(rng.normal(size=(5, 2, d))).mean(1)
    run = measured(in_batch_negatives=in_batch_negatives, temperature=2.0)

    units, fits = brute_force.unit(z), {}
    fit = lambda m: (brute_force.unit(m), 0.95 * np.linalg.norm(m))  # noqa: E731
    kappa = lambda r: r * (d - r**2) / (1 - r**2) / d  # noqa: E731
    for g in (0, 1):
        for i in range(n):
            here = [units[l, i] for l in (2 * g, 2 * g + 1) if mask[l, i]]
            if here:
                fits[g, i] = fit(np.mean(here, axis=0))
    positives, negatives = [], []
    for i in range(n):
        if (0, i) not in fits or (1, i) not in fits:
            continue
        mu, r = fits[0, i]
        far = [fits[1, j] for j in range(n) if j != i and (1, j) in fits] if in_batch_negatives else []
        far += [fit(row) for row in queue]
        similarity = lambda f, mu=mu, r=r: -brute_force.divergence(mu, kappa(r), r, f[0], kappa(f[1])) / 2  # noqa: E731
        positives.append(similarity(fits[1, i]))
        negatives.append(np.mean([similarity(f) for f in far]))
    expected = {
        "resultant": np.mean([r for _, r in fits.values()]),
        "concentration": np.mean([kappa(r) for _, r in fits.values()]),
        "positive_similarity": np.mean(positives),
        "negative_similarity": np.mean(negatives),
    }
    loss, found = jax.jit(lambda z: run(z, queue=queue, mask=mask))(z)
    options = {"in_batch_negatives": in_batch_negatives, "temperature": 2.0}
    np.testing.assert_allclose(loss, brute_force.dsf(units, mask, extra=queue, **options), rtol=1e-10)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), found, expected)

    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.P(None, "data")
    local = lambda z, m, queue: run(z, queue=queue, mask=m, axis_name="data")  # noqa: E731
    split = jax.shard_map(local, mesh=mesh, in_specs=(rows, rows, jax.P()), out_specs=jax.P())
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10),
        jax.jit(split)(z, mask, queue),
        (loss, found),
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
    with pytest.raises(
        ValueError, match=r"queue_concentration must be one of 'own', 'batch_mean', got 'mean'"
    ):
        losses.dsf(q, q, queue_concentration="mean")
    with pytest.raises(ValueError, match=r"mean_resultant must be one of 'estimate', 'exact', got 'A'"):
        losses.dsf(q, q, mean_resultant="A")
    with pytest.raises(ValueError, match=r"keys must have the instances.*got \(2, 3, 3\)"):
        losses.dsf(q, q[:, :3])
