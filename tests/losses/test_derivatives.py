"""Forward and reverse mode, first and second derivatives of every objective, against finite differences."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from jax.test_util import check_grads

from mvcl import losses
from mvcl.losses import Operands


def cases():
    """Every objective by name; higher-order ones over two pair losses. `m3g` and `m3g_pair` have tests of their own."""
    for name, function in losses.objectives().items():
        if vars(function)["mvcl_takes"].like is None:
            yield name, function
        else:
            for pair in (losses.nt_xent, losses.info_nce):
                yield f"{name}({pair.__name__})", function(pair)


OBJECTIVES = {name: function for name, function in cases() if function not in (losses.m3g, losses.m3g_pair)}
# Higher-order functions of nt_xent take the paths of nt_xent and of those of info_nce.
every_objective = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name.endswith("(nt_xent)") else [])
        for name in OBJECTIVES
    ],
)


def of_views(objective):
    """The objective as a function of (3, n, d) views and a (3, n) mask; a pair loss is of the first two."""

    def loss(z, mask=None, **options):
        operands = losses.takes(objective).operands
        views = z[:2] if operands is Operands.PAIR else z
        if losses.takes(objective).key:
            options["key"] = jax.random.key(0)
        if "slices" in losses.takes(objective).options:  # of many some change the order of their projections
            options["slices"] = 4
        if mask is not None:
            options["mask"] = mask[: len(views)]
        if operands is Operands.VIEWS:
            return objective(views, **options)
        if operands is Operands.PAIR:
            return objective(*views, **options)
        return objective(views[:1], views[1:], **options)

    return loss


def check(loss, arguments):
    # Not compiled: operations of the same shape are shared by all tests, programs would be ten for each.
    with jax.disable_jit():
        chex.assert_numerical_grads(loss, arguments, order=2, atol=1e-5, rtol=1e-4, eps=1e-5)


@every_objective
def test_orders_one_and_two_in_both_modes(x64, rng, name):
    check(of_views(OBJECTIVES[name]), (jnp.asarray(rng.normal(size=(3, 3, 2))),))


@pytest.mark.slow  # the same paths, and minutes more
@pytest.mark.parametrize("name", [name for name, f in OBJECTIVES.items() if losses.takes(f).mask])
def test_orders_one_and_two_with_a_mask(x64, rng, name):
    mask = np.array([[True, True, False], [True] * 3, [False, True, True]])
    loss = functools.partial(of_views(OBJECTIVES[name]), mask=mask)
    check(loss, (jnp.asarray(rng.normal(size=(3, 3, 2))),))


@pytest.mark.parametrize("temperature", [1.0, 2e-3])
@pytest.mark.parametrize("objective", [functools.partial(losses.mv_infonce, negatives="all"), losses.nt_xent])
def test_one_shift_and_row_maxima_by_embeddings_and_temperature(x64, rng, objective, temperature):
    """The smaller temperature needs row maxima; the vectors are so close that it leaves several terms."""
    loss = of_views(objective)

    def scaled(z, factor=1.0):
        return loss(1 + np.sqrt(temperature) * z, temperature=temperature * factor)

    z = jnp.asarray(rng.normal(size=(3, 3, 2)))
    check(scaled, (z,))
    check(scaled, (z, jnp.ones(())))


def test_compiled_and_as_called_by_default(x64, rng):
    z = jnp.asarray(rng.normal(size=(3, 4, 3)))
    chex.assert_numerical_grads(jax.jit(losses.mv_infonce), (z,), order=2)


def test_second_derivatives_of_several_problems_at_once(x64, rng):
    z = jnp.asarray(rng.normal(size=(2, 3, 3, 2)))
    hessians = jax.jit(jax.vmap(jax.hessian(losses.mv_infonce)))(z)
    for one, found in zip(z, hessians):
        np.testing.assert_allclose(found, jax.jit(jax.hessian(losses.mv_infonce))(one), atol=1e-12)


SOLVER = {"tolerance": 1e-13, "max_iterations": 2000}


def test_hessian_of_m3g_is_that_of_the_gradient(x64, rng):
    """One small problem; those below are slow to compile."""
    z, direction = jnp.asarray(rng.normal(size=(2, 2, 3, 2)))

    def loss(z):
        return losses.m3g(z, 0.2, **SOLVER)

    gradient = jax.jit(jax.grad(loss))

    def difference(step):
        return (gradient(z + step * direction) - gradient(z - step * direction)) / (2 * step)

    expected = (4 * difference(1e-4) - difference(2e-4)) / 3  # to fourth order in the step
    hessian = jax.jit(jax.hessian(loss))(z)
    np.testing.assert_allclose(jnp.tensordot(hessian, direction, 3), expected, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(hessian, hessian.transpose(3, 4, 5, 0, 1, 2), atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cost",
    [
        "circular_variance",
        "circular_standard_deviation",
        lambda stack: jnp.sum(jnp.sin(stack[0] * stack[-1])),
    ],
)
def test_m3g_by_embeddings_and_epsilon(x64, rng, cost):
    def loss(z, epsilon):
        return losses.m3g(z, epsilon, cost, **SOLVER)

    z = jnp.asarray(rng.normal(size=(3, 3, 2)))
    chex.assert_numerical_grads(jax.jit(loss), (z, jnp.asarray(0.3)), order=2, atol=1e-5, rtol=1e-4, eps=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cost", ["circular_variance", "circular_standard_deviation"])
def test_m3g_with_a_mask(x64, rng, cost):
    mask = np.array([[True, True, False], [True] * 3, [False, True, True]])

    def loss(z):
        return losses.m3g(z, 0.3, cost, mask=mask, **SOLVER)

    # Not chex's, which puts ones for stop_gradient: the logarithm of a point of weight 0 is then -inf.
    check_grads(jax.jit(loss), (jnp.asarray(rng.normal(size=(3, 3, 2))),), 2, atol=1e-4, rtol=1e-4, eps=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 3])
def test_m3g_of_pairs(x64, rng, k):
    objective = losses.all_pairs(functools.partial(losses.m3g_pair, epsilon=0.2, cost_scale=2.0, **SOLVER))
    z = jnp.asarray(rng.normal(size=(k, 3, 2)))
    chex.assert_numerical_grads(jax.jit(objective), (z,), order=2, atol=1e-5, rtol=1e-4, eps=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cost", ["circular_variance", "circular_standard_deviation"])
def test_second_order_of_m3g_over_devices(x64, rng, cost):
    """Forward over reverse and reverse over reverse of instances split over devices."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])
    z, direction = jnp.asarray(rng.normal(size=(2, 3, 4, 2)))

    def loss(z, axis_name=None):
        return losses.m3g(z, 0.2, cost, axis_name=axis_name, **SOLVER)

    def second(loss):
        def products(z):
            over_reverse = jax.jvp(jax.grad(loss), (z,), (direction,))[1]
            return over_reverse, jax.grad(lambda z: jnp.sum(jax.grad(loss)(z) * direction))(z)

        return jax.jit(products)

    split = jax.shard_map(
        functools.partial(loss, axis_name="data"), mesh=mesh, in_specs=P(None, "data"), out_specs=P()
    )
    for found, expected in zip(second(split)(z), second(loss)(z)):
        np.testing.assert_allclose(found, expected, atol=1e-11)


@pytest.mark.parametrize("name", [name for name, f in OBJECTIVES.items() if losses.takes(f).block_size])
def test_forward_mode_in_blocks_raises_and_reverse_mode_does_not(rng, name):
    objective = OBJECTIVES[name]
    loss = functools.partial(of_views(objective), block_size=2)
    z = jnp.asarray(rng.normal(size=(3, 3, 2)), jnp.float32)
    jax.eval_shape(jax.grad(loss), z)
    with pytest.raises(TypeError, match=r"forward-mode derivatives .* whole blocks .* block_size"):
        jax.jvp(loss, (z,), (z,))


def test_forward_mode_over_devices_raises(rng):
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    for loss in (losses.mv_dhel, losses.mv_cl1):
        split = jax.shard_map(
            functools.partial(loss, axis_name="data"), mesh=mesh, in_specs=P(None, "data"), out_specs=P()
        )
        z = jnp.asarray(rng.normal(size=(2, 4, 2)), jnp.float32)
        with pytest.raises(TypeError, match=r"forward-mode derivatives .* 'data'.* without axis_name"):
            jax.jit(lambda z, split=split: jax.jvp(split, (z,), (z,)))(z)
