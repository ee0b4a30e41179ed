"""What every objective promises: blocks, devices, vmap, precision, degenerate input, linear memory."""

import functools

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ROWS, WHOLE, both, close, every, mesh, split, together
from parametrize import some

from mvcl import losses


@every(cases.PLAIN)
def test_declaration_is_that_of_the_signature(case):
    takes = case.takes
    for option in ("axis_name", "block_size", "normalize", "global_views"):
        assert getattr(takes, option) == (option in takes.options)
    assert takes.queue is None or takes.options[takes.queue] is None
    assert not takes.mask or takes.options["mask"] is None
    assert takes.mask == (takes.instance_axis.get("mask") == 1)
    assert not takes.key or takes.options.get("key") is None
    assert takes.terms is None or takes.operands is losses.Operands.PAIR


def test_weights_of_pairs_are_split_over_devices_where_they_are_of_instances():
    takes = losses.takes(losses.all_pairs(losses.nt_xent))
    assert [takes.axis_of_instances("weights", np.ones((3,) * axes)) for axes in (2, 3)] == [None, 2]


# One of each family, and those that test_derivatives leaves out.
DEGENERATE = ["info_nce", "mv_infonce", "frossl", "siglip", "gram", "symile", "pmrl", "mmcr"]
DEGENERATE += ["m3g", "m3g_pair", "visreg"]

# One of each way to compute: log-sum-exps across and within views, sums of other functions, cross-entropies of rows and
# columns, tuples. The higher-order functions' loops are in test_values.
BLOCKS = ["dhel", "mv_infonce", "sufficient_statistics", "siglip", "triangle", "symile"]


@every(cases.ALL, lambda case: case.takes.block_size, fast=BLOCKS)
def test_blocks_equal_whole_ones_where_views_are_missing(x64, rng, case):
    z, mask = case.with_holes(rng, case.draw(rng))
    found, whole = together(both(case.run, block_size=4, **mask), both(case.run, **mask))(z)
    close(found, whole)
    assert np.all(np.asarray(found[1])[~mask["mask"]] == 0)


# Beside these, those of the exhaustive suite have the same collectives.
SPLIT = ["dhel", "mv_infonce", "sufficient_statistics", "siglip", "gram", "symile"]
SPLIT += ["pmrl", "vicreg", "mmcr", "frossl", "lejepa", "m3g"]


@every(cases.ALL, lambda case: case.takes.axis_name, fast=SPLIT)
def test_instances_split_over_devices_where_views_are_missing(x64, rng, case):
    """The gradient of each device's embeddings is taken inside."""
    z, mask = case.with_holes(rng, case.draw(rng))
    local = lambda z, mask: both(case.run, axis_name="data", **mask)(z)  # noqa: E731
    found = jax.jit(split(local, ROWS, ROWS, out=(WHOLE, ROWS)))(z, mask)
    close(found, both(case.run, **mask)(z), 1e-11)


@every(
    cases.PLAIN,
    lambda case: case.takes.block_size and "temperature" in case.takes.options,
    fast=["dhel", "mv_infonce"],
)
def test_row_maxima_in_blocks_and_over_devices(x64, rng, case):
    """At a temperature that one shift does not serve."""
    z, cold = case.draw(rng), {"temperature": 0.002}
    expected, in_blocks = together(both(case.run, **cold), both(case.run, block_size=4, **cold))(z)
    close(in_blocks, expected, 1e-10)
    if case.takes.axis_name:
        local = functools.partial(case.run, axis_name="data", **cold)
        close(both(split(local))(z), expected, 1e-10)


@every(cases.ALL, lambda case: case.takes.axis_name, fast=["dhel", "mv_infonce", "frossl"])
def test_two_mesh_axes_blocks_and_the_gradient_outside(x64, rng, case):
    z, rows = case.draw(rng, 8), jax.P(None, ("data", "fsdp"))
    blocks = {"block_size": 1} if case.takes.block_size else {}
    local = functools.partial(case.run, axis_name=("data", "fsdp"), **blocks)
    on_four = jax.shard_map(local, mesh=mesh("data", "fsdp"), in_specs=rows, out_specs=WHOLE)
    close(both(on_four)(z), both(case.run)(z), 1e-11)


@every(cases.ALL, fast=["mv_infonce", "vicreg"])
def test_a_split_array_and_several_problems_at_once(x64, rng, case):
    z = case.draw(rng)
    expected = both(case.run)(z)
    sharded = jax.device_put(z, jax.sharding.NamedSharding(mesh("data"), ROWS))
    close(both(case.run)(sharded), expected, 1e-11)
    values, slopes = jax.jit(jax.vmap(both(case.run)))(np.stack([z[:, ::-1], z]))
    close((values[1], slopes[1]), expected, 1e-11)


@every(cases.ALL, fast=["mv_dhel", "spectral", "symile", "mmcr", "vicreg"])
def test_half_precision_is_computed_in_single(rng, case):
    z, run = jnp.asarray(case.draw(rng), jnp.bfloat16), both(case.run)
    found, exact = together(run, lambda z: run(z.astype(jnp.float32)))(z)
    assert found[0].dtype == jnp.float32
    assert found[1].dtype == jnp.bfloat16
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-6)
    np.testing.assert_allclose(found[1].astype(jnp.float32), exact[1], rtol=0.01, atol=1e-6)


@every(cases.ALL, fast=DEGENERATE)
def test_degenerate_vectors_have_finite_gradients_in_single_precision(rng, case):
    """In double precision they are in test_derivatives. And two instances of eight views, and no view at all."""
    z, few = case.draw(rng).astype(np.float32), case.draw(rng, 2, 3, views=8).astype(np.float32)
    runs = [(both(case.run), [few, *cases.degenerate(z, case.takes.normalize)])]
    if case.takes.mask:
        runs.append((both(case.run, mask=np.zeros(z.shape[:2], bool)), [z]))
    for run, inputs in runs:
        for bad in inputs:
            value, slope = run(bad)
            assert np.isfinite(value)
            assert np.isfinite(slope).all()


@every(
    cases.PLAIN,
    lambda case: "temperature" in case.takes.options and case.reference.small_temperature,
    fast=["mv_infonce", "gram", "symile", "pmrl"],
)
def test_a_temperature_of_a_thousandth_in_single_precision(rng, case):
    z = case.draw(rng).astype(np.float32)
    value, slope = both(case.run, temperature=1e-3)(z)
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(value, case.by_hand(np.float64(z), temperature=1e-3), rtol=1e-4, atol=2e-3)


@every(
    cases.ALL,
    lambda case: case.takes.block_size and case.reference.linear_memory,
    fast=["mv_infonce", "siglip"],
)
def test_memory_in_blocks_grows_with_n_only(case):
    """Forward and backward take less than a quarter of one matrix of similarities."""
    n = 4096
    z = jax.ShapeDtypeStruct((cases.VIEWS[case.takes.operands], n, 4), jnp.float32)
    program = both(case.run, block_size=64).lower(z).compile()
    assert program.memory_analysis().temp_size_in_bytes < n * n


DIRECTIONS = {"slices": 65536, "key": jax.random.key(1)}
MEMORY = [  # all products of three views would be 67 MB, 4 GB and 67 MB, of two of four views 75 MB, differences 34 MB,
    # and all projections 268 MB
    (losses.symile, (3, 256, 128), 256),
    (losses.symile, (3, 1024, 128), 256),
    (lambda z: losses.symile(z, jnp.sum(z[0, 0]) ** 2), (3, 256, 128), 256),
    (losses.symile, (4, 96, 2048), 40),
    (functools.partial(losses.gram, block_size=256), (3, 256, 128), 5),
    (functools.partial(losses.triangle, block_size=256), (3, 256, 128), 5),
    (functools.partial(losses.lejepa, **DIRECTIONS), (2, 512, 4), 53),
    (functools.partial(losses.visreg, **DIRECTIONS), (2, 512, 4), 53),
]


@pytest.mark.parametrize("bound", some(MEMORY, fast=[MEMORY[0], MEMORY[3], MEMORY[5], MEMORY[6]]))
def test_neither_products_nor_differences_nor_projections_are_held(bound):
    loss, shape, megabytes = bound
    program = both(loss).lower(jax.ShapeDtypeStruct(shape, jnp.float32)).compile()
    assert program.memory_analysis().temp_size_in_bytes < megabytes * 1e6
