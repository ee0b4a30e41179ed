"""Joint contrast of k modalities where vectors coincide, in single precision, over devices and in blocks."""

import functools

import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from mvcl import losses

KEY = jax.random.key(3)


def slope_along(loss, z, direction, step=1e-6):
    return (loss(z + step * direction) - loss(z - step * direction)) / (2 * step)


def close_views(rng, spread, n=16, d=32, k=3):
    """Views that differ from each other by `spread`, in float32."""
    return (rng.normal(size=(1, n, d)) + spread * rng.normal(size=(k, n, d))).astype(np.float32)


@pytest.mark.parametrize("name", ["gram", "triangle", "pmrl"])
def test_default_options_where_dimensions_are_more_than_views(x64, rng, name):
    z = brute_force.unit(rng.normal(size=(3, 6, 5)))
    expected = brute_force.REFERENCES[name].loops(z, np.ones((3, 6), bool))
    np.testing.assert_allclose(getattr(losses, name)(z), expected, rtol=1e-11)


@pytest.mark.parametrize("loss", [losses.gram, losses.triangle, losses.pmrl])
def test_single_precision_where_views_nearly_coincide(x64, rng, loss):
    """A determinant computed in float32 has no digits left there."""
    run = jax.jit(jax.value_and_grad(loss))
    for spread in (1e-1, 1e-2, 1e-3, 1e-4):
        z = close_views(rng, spread)
        value, slope = run(z)
        exact, expected = run(np.float64(z))
        assert value.dtype == jnp.float32
        np.testing.assert_allclose(value, exact, atol=2e-6)
        # The inputs' own rounding is 1e-7 / spread of a difference of two views.
        np.testing.assert_allclose(slope, expected, atol=(1e-5 + 5e-7 / spread) * np.abs(expected).max())


@pytest.mark.parametrize("loss", [losses.gram, losses.triangle])
@pytest.mark.parametrize("views", [[1, 2], [0, 1], [0, 1, 2]])
def test_derivative_where_a_volume_is_zero(x64, rng, loss, views):
    """eps makes it smooth there: finite differences in every direction."""
    z = brute_force.unit(rng.normal(size=(3, 5, 4)))
    z[views, 2] = z[views[0], 2]
    run = jax.jit(functools.partial(loss, temperature=0.5, eps=1e-2))
    slope = jax.jit(jax.grad(run))(z)
    for direction in rng.normal(size=(3, 3, 5, 4)):
        np.testing.assert_allclose(np.sum(slope * direction), slope_along(run, z, direction), atol=1e-8)


@pytest.mark.parametrize("loss", [losses.gram, losses.triangle])
def test_coinciding_others_have_no_gradient(x64, rng, loss):
    """The volume is zero for every anchor."""
    z = rng.normal(size=(3, 5, 4))
    z[2] = z[1]
    value, slope = jax.jit(jax.value_and_grad(loss))(z)
    np.testing.assert_allclose(value, np.log(5), rtol=1e-6)
    np.testing.assert_allclose(slope, 0, atol=1e-10)


def test_label_smoothing_is_that_of_the_released_code(x64, rng):
    """Labels 1 - s + s / n on the diagonal and s / n beside it, of rows and of columns."""
    z = brute_force.unit(rng.normal(size=(3, 5, 4)))
    logits = np.array(
        [[-brute_force.volume([z[0, i], z[1, j], z[2, j]], 1e-8) / 0.07 for j in range(5)] for i in range(5)]
    )
    labels = 0.9 * np.eye(5) + 0.1 / 5
    expected = [-np.sum(labels * jax.nn.log_softmax(logits, axis=a)) / 5 for a in (0, 1)]
    np.testing.assert_allclose(losses.gram(z, label_smoothing=0.1), np.mean(expected), rtol=1e-11)


def equal_cosines(rng, cosine, n=4, d=6):
    """(3, n, d) unit vectors: the singular values of an instance are sqrt(1 + 2c), sqrt(1 - c), sqrt(1 - c)."""
    root = np.linalg.cholesky((1 - cosine) * np.eye(3) + cosine)
    bases = [np.linalg.qr(rng.normal(size=(d, 3)))[0] for _ in range(n)]
    return np.stack([root @ b.T for b in bases], axis=1)


@pytest.mark.parametrize("cosine", [0.3, 0.999])
def test_equal_singular_values(x64, rng, cosine):
    """Where the leading one is single the loss is differentiable, whatever basis the others have."""
    z, run = equal_cosines(rng, cosine), jax.jit(functools.partial(losses.pmrl, temperature=0.5))
    slope = jax.jit(jax.grad(run))(z)
    for direction in rng.normal(size=(3, *z.shape)):
        np.testing.assert_allclose(np.sum(slope * direction), slope_along(run, z, direction), rtol=1e-6)


def test_equal_leading_singular_values(x64, rng):
    """Views at right angles: a subgradient of the first term lies between the slopes of both sides."""
    z = equal_cosines(rng, 0.0)
    run = jax.jit(functools.partial(losses.pmrl, temperature=0.5, weight=0.0))
    value, slope = jax.jit(jax.value_and_grad(losses.pmrl))(z)
    assert np.isfinite(value)
    assert np.isfinite(slope).all()
    slope = jax.jit(jax.grad(run))(z)
    assert np.abs(slope).max() > 0.1
    for direction in rng.normal(size=(4, *z.shape)):
        # -σ_1 / t has the least slope of its directional derivatives at a maximum; all are within σ's bound of 1.
        steep = 2 / 0.5 * np.mean(np.linalg.norm(direction.transpose(1, 0, 2), axis=(1, 2), ord=2))
        assert abs(np.sum(slope * direction)) <= steep


def test_singular_values_of_zero_have_their_middle_subgradient(x64, rng):
    z = np.repeat(brute_force.unit(rng.normal(size=(1, 4, 6))), 3, axis=0)
    run = jax.jit(functools.partial(losses.pmrl, temperature=0.5))
    slope = jax.jit(jax.grad(run))(z)
    for direction in rng.normal(size=(3, *z.shape)):
        np.testing.assert_allclose(np.sum(slope * direction), slope_along(run, z, direction), atol=1e-5)


def test_direction_of_two_views_of_negative_cosine(x64, rng):
    """Their sum is at a right angle to the leading vector: its sign is that of the first view."""
    z = brute_force.unit(rng.normal(size=(2, 6, 3)))
    z[1] *= -np.sign(np.sum(z[0] * z[1], axis=1))[:, None]
    left = brute_force.unit(z[0] - z[1])
    products = left @ left.T / 0.1
    expected = np.mean(np.log(np.exp(products).sum(1)) - 10)
    within = losses.pmrl(z, weight=0.0)
    np.testing.assert_allclose(losses.pmrl(z) - within, expected, rtol=1e-9)
    np.testing.assert_allclose(losses.pmrl(z), losses.pmrl(z @ np.linalg.qr(rng.normal(size=(3, 3)))[0]))


def over_devices(loss, count):
    mesh = jax.make_mesh((count,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:count])
    rows = P(None, "data")
    local = lambda z, m: jax.value_and_grad(lambda z: loss(z, mask=m, axis_name="data"))(z)  # noqa: E731
    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(rows, rows), out_specs=(P(), rows)))


@pytest.mark.parametrize(("count", "options"), [(2, {}), (8, {"block_size": 1})])
def test_shuffled_tuples_do_not_depend_on_devices(x64, rng, count, options):
    z = rng.normal(size=(3, 16, 4))
    mask = rng.random((3, 16)) < 0.8
    mask[:, 0] = True
    loss = functools.partial(losses.symile, negatives="shuffled", key=KEY, temperature=0.2)
    value, slope = jax.jit(jax.value_and_grad(lambda z: loss(z, mask=mask)))(z)
    expected = brute_force.symile(brute_force.unit(z), mask, 0.2, "shuffled", KEY)
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    found = over_devices(functools.partial(loss, **options), count)(z, mask)
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    np.testing.assert_allclose(found[1], slope, atol=1e-12)


def test_another_key_draws_other_tuples(rng):
    z = rng.normal(size=(3, 6, 4)).astype(np.float32)
    drawn = [losses.symile(z, negatives="shuffled", key=jax.random.key(seed)) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


@pytest.mark.parametrize(("k", "n", "temperature"), [(2, 7, 1.0), (3, 5, 1.0), (3, 5, 1e-3), (4, 3, 1.0)])
def test_all_tuples_in_blocks(x64, rng, k, n, temperature):
    """Blocks of less than a view's rows, and of several vectors of the views before it; with rows left over."""
    z, mask = rng.normal(size=(k, n, 4)), rng.random((k, n)) < 0.8
    mask[:, 0] = True
    whole = functools.partial(losses.symile, temperature=temperature, mask=mask)
    expected = jax.jit(jax.value_and_grad(functools.partial(whole, block_size=n**k)))(z)
    loops = brute_force.symile(brute_force.unit(z), mask, temperature, key=KEY)
    np.testing.assert_allclose(expected[0], loops, rtol=1e-10)
    for rows in (2, n + 1, 2 * n):
        found = jax.jit(jax.value_and_grad(functools.partial(whole, block_size=rows)))(z)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-11)
        np.testing.assert_allclose(found[1], expected[1], atol=1e-11 * np.abs(expected[1]).max())


@pytest.mark.parametrize("k", [2, 4])
def test_all_tuples_over_devices(x64, rng, k):
    z, mask = rng.normal(size=(k, 4, 3)), np.ones((k, 4), bool)
    mask[0, 1] = False
    value, slope = jax.jit(jax.value_and_grad(functools.partial(losses.symile, mask=mask)))(z)
    found = over_devices(losses.symile, 2)(z, mask)
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    np.testing.assert_allclose(found[1], slope, atol=1e-12)


def test_the_order_of_the_instances_does_not_count(x64, rng):
    z = rng.normal(size=(3, 6, 4))
    np.testing.assert_allclose(losses.symile(z[:, ::-1]), losses.symile(z), rtol=1e-12)


def megabytes(loss, shape):
    program = jax.jit(jax.value_and_grad(loss)).lower(jax.ShapeDtypeStruct(shape, jnp.float32)).compile()
    return program.memory_analysis().temp_size_in_bytes / 1e6


@pytest.mark.parametrize("n", [256, 1024])
def test_memory_of_all_tuples(n):
    """All 256³ products are 67 MB, all 1024³ are 4 GB."""
    assert megabytes(losses.symile, (3, n, 128)) < 256
    assert megabytes(lambda z: losses.symile(z, jnp.sum(z[0, 0]) ** 2), (3, n, 128)) < 256


def test_products_of_two_views_are_not_held():
    """All products of two of four views are an (n, n, d) array of 75 MB here."""
    assert megabytes(losses.symile, (4, 96, 2048)) < 40


@pytest.mark.parametrize("loss", [losses.gram, losses.triangle])
def test_no_array_of_all_differences(loss):
    """Of (n, n, d) one alone would take 34 MB."""
    assert megabytes(functools.partial(loss, block_size=256), (3, 256, 128)) < 5


@pytest.mark.parametrize("loss", [losses.symile, losses.gram, losses.triangle, losses.pmrl])
def test_a_traced_temperature(x64, rng, loss):
    """On both sides of the switch to maxima of rows; the derivative by it."""
    z = rng.normal(size=(3, 5, 4))
    traced = jax.jit(jax.value_and_grad(lambda t: loss(z, t)))
    for t in (1e-3, 0.3):
        value, slope = traced(t)
        np.testing.assert_allclose(value, loss(z, t), rtol=1e-11)
        change = (traced(t * (1 + 1e-6))[0] - traced(t * (1 - 1e-6))[0]) / (2e-6 * t)
        np.testing.assert_allclose(slope, change, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        functools.partial(losses.gram, label_smoothing=0.2),
        functools.partial(losses.triangle, squared=True),
        losses.triangle,
        losses.pmrl,
        functools.partial(losses.symile, negatives="shuffled", key=KEY),
    ],
)
def test_second_derivatives_in_four_dimensions(x64, rng, loss):
    """In the two dimensions of the tests of all objectives, every volume of three views is zero."""
    z, direction = rng.normal(size=(2, 3, 4, 4))
    gradient = jax.jit(jax.grad(loss))
    forward = jax.jit(lambda z: jax.jvp(loss, (z,), (direction,))[1])
    np.testing.assert_allclose(forward(z), np.sum(gradient(z) * direction), rtol=1e-10)
    second = jax.jit(lambda z: jax.jvp(jax.grad(loss), (z,), (direction,))[1])
    reverse = jax.jit(jax.grad(lambda z: jnp.sum(jax.grad(loss)(z) * direction)))
    expected = slope_along(gradient, z, direction)
    for found in (second(z), reverse(z)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_arguments():
    z = np.ones((3, 4, 2), np.float32)
    with pytest.raises(ValueError, match=r"anchor must be a view, 0 to 2, got 3"):
        losses.gram(z, anchor=3)
    with pytest.raises(ValueError, match=r"anchor must be a whole number >= 0, got -1"):
        losses.gram(z, anchor=-1)
    for loss in (losses.gram, losses.triangle):
        with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 1\], got 1.5"):
            loss(z, label_smoothing=1.5)
        with pytest.raises(ValueError, match=r"eps must be positive, got 0"):
            loss(z, eps=0)
    with pytest.raises(ValueError, match=r"z must have shape \(3, n, d\), got \(2, 4, 2\)"):
        losses.triangle(z[:2])
    with pytest.raises(ValueError, match=r'key must be a jax.random key for negatives="shuffled", got None'):
        losses.symile(z, negatives="shuffled")
    with pytest.raises(ValueError, match=r"negatives must be one of 'all', 'shuffled', got 'n'"):
        losses.symile(z, negatives="n")
    with pytest.raises(ValueError, match=r"instance_temperature must be positive, got 0"):
        losses.pmrl(z, instance_temperature=0)
