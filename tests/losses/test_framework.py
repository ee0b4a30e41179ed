"""Koromilas's framework: every combination, its named points, and kernels that the caller writes."""

import functools
import itertools

import brute_force
import cases
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parametrize import some

from mvcl import losses

ALIGNMENTS = ("instance", "view", "pair")
ENERGIES = ("instance", "view", "view_sum", "pair", "positive")
NEGATIVES = ("within_view", "cross_view", "all")
CONTRAST = losses.multi_view_contrast


def cauchy(x):
    return 1 / (1 + 3 * x)


def exponential(x):
    """The kernel at temperature 0.2, as a function."""
    return jax.numpy.exp((2 - x) / 0.4)


def point(alignment, energy, negatives, **options):
    return functools.partial(CONTRAST, alignment=alignment, energy=energy, negatives=negatives, **options)


@pytest.mark.parametrize("alignment", some(ALIGNMENTS, fast=["pair"]))
@pytest.mark.parametrize("kernel", [None, cauchy])
@pytest.mark.parametrize("plain", [False, True])
def test_every_combination(x64, rng, alignment, kernel, plain):
    """Where views are missing and with a queue; plain, without both, where the energy has a weight."""
    z, extra = rng.normal(size=(4 if plain else 3, 6, 3)), brute_force.unit(rng.normal(size=(2, 3)))
    mask = np.ones(z.shape[:2], bool) if plain else cases.some_missing(rng, z.shape[:2])
    given = {"energy_weight": 0.5} if plain else {"mask": mask, "extra_negatives": extra}
    given |= {} if kernel is None else {"kernel": kernel}
    options = [(alignment, *rest) for rest in itertools.product(ENERGIES, NEGATIVES)]
    several = [point(*o, **given) for o in options]
    found = jax.jit(lambda z: [loss(z) for loss in several])(np.where(mask[:, :, None], z, np.nan))
    of_loops = {"energy_weight": 0.5} if plain else {"extra": extra}
    loops = functools.partial(brute_force.multi_view_contrast, mask=mask, kernel=kernel, **of_loops)
    units, names = brute_force.unit(np.where(mask[:, :, None], z, 0)), ("alignment", "energy", "negatives")
    np.testing.assert_allclose(found, [loops(units, **dict(zip(names, o))) for o in options], rtol=1e-12)


POINTS = [  # named objectives that are computed otherwise, the same by arguments
    (losses.poly_view, point("pair", "positive", "all")),
    (losses.all_pairs(losses.nt_xent), point("pair", "pair", "all")),
    (losses.all_pairs(losses.info_nce, pairs="ordered"), point("pair", "pair", "cross_view")),
]
# Where views are missing, DHEL's energies of a pair are of the instances that have one of the two.
PAIRS_OF_DHEL = losses.all_pairs(losses.dhel), point("pair", "view", "within_view", energy_weight=2.0)


def test_named_points(x64, rng):
    """Value and gradient with a queue, where views are missing."""
    z = rng.normal(size=(4, 6, 3))
    given = {"temperature": 0.2, "extra_negatives": rng.normal(size=(2, 3))}
    missing = {"mask": cases.some_missing(rng, z.shape[:2])}
    runs = [functools.partial(loss, **given, **missing) for both in POINTS for loss in both]
    runs += [functools.partial(loss, **given) for loss in PAIRS_OF_DHEL]
    found = cases.together(*map(jax.value_and_grad, runs))(z)
    for expected, each in zip(found[::2], found[1::2]):
        cases.close(each, expected)


@pytest.mark.parametrize("options", some([{}, {"energy": "pair", "negatives": "all"}], fast=[{}]))
def test_the_exponential_kernel_as_a_function(x64, rng, options):
    """Value and gradient with a queue, where views are missing, in blocks, and on two devices."""
    z, extra = rng.normal(size=(3, 6, 3)), rng.normal(size=(2, 3))
    mask = cases.some_missing(rng, z.shape[:2])
    loss = functools.partial(CONTRAST, extra_negatives=extra, **options)
    runs = [cases.both(loss, temperature=0.2, mask=mask)]
    runs += [cases.both(loss, kernel=exponential, mask=mask, block_size=size) for size in (None, 4)]
    expected, *found = cases.together(*runs)(z)
    local = lambda z, mask: loss(z, kernel=exponential, mask=mask, axis_name="data", block_size=2)  # noqa: E731
    found.append(jax.jit(jax.value_and_grad(cases.split(local, cases.ROWS, cases.ROWS)))(z, mask))
    for each in found:
        cases.close(each, expected, 1e-11)


def test_a_parameter_of_the_kernel_may_be_learned(x64, rng):
    z = rng.normal(size=(3, 5, 3))
    loss = lambda s: CONTRAST(z, energy="view", kernel=lambda x: 1 / (1 + s * x))  # noqa: E731
    run = jax.jit(jax.value_and_grad(loss))
    np.testing.assert_allclose(run(2.0)[1], (run(2.0 + 1e-6)[0] - run(2.0 - 1e-6)[0]) / 2e-6, rtol=1e-7)


@pytest.mark.parametrize("negatives", ["within_view", "cross_view", "all"])
def test_a_kernel_may_have_an_infinite_slope_at_0(x64, rng, negatives):
    """A vector's distance to itself, which is left out, is 0."""
    z = jnp.asarray(rng.normal(size=(3, 4, 5)))
    loss = lambda z: CONTRAST(z, negatives=negatives, kernel=lambda x: jnp.exp(-jnp.sqrt(x)))  # noqa: E731
    chex.assert_numerical_grads(jax.jit(loss), (z,), order=1)


def test_kernels_that_have_no_logarithm_raise():
    z, logarithmic = np.ones((3, 4, 2), np.float32), lambda x, s: -jax.numpy.log(s * x + 0.1) / 2
    jax.eval_shape(functools.partial(CONTRAST, kernel=lambda x: logarithmic(x, 0.2)), z)
    for kernel, message in [
        (lambda x: logarithmic(x, 1.0), r"kernel must be positive and finite .* got -0.04765.* at 1; "),
        (lambda x: x**-0.5, r"kernel must be positive and finite in float32 .* got inf at 0; "),
        (lambda x: 1.0, r"kernel must return an array of the shape of the distances, got \(\)"),
        ("log", r"kernel must be 'exponential' or a function of squared distances, got 'log'"),
        (np.ones(3), r"kernel must be 'exponential' or a function of squared distances, got array"),
    ]:
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(functools.partial(CONTRAST, kernel=kernel), z)
    with pytest.raises(ValueError, match=r"temperature is not used with a kernel, .* got 0.2"):
        CONTRAST(z, 0.2, kernel=cauchy)


def test_a_kernel_within_views_is_computed_there_alone():
    z = jax.ShapeDtypeStruct((8, 64, 16), jnp.float32)
    losses_of = (functools.partial(CONTRAST, negatives=n, kernel=cauchy) for n in ("within_view", "all"))
    within, every = (jax.jit(loss).lower(z).compile().cost_analysis()["flops"] for loss in losses_of)
    assert within < every / 6
