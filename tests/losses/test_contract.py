"""What every objective promises, one row each: devices, blocks, masks, vmap, precision, degenerate input,
retracing.
"""

import functools

import brute_force
import cases
import jax
import jax.numpy as jnp
import numpy as np
from cases import every
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mvcl import losses

N, D = 12, 5
STEP = 1e-5


def both(loss, **options):
    return jax.value_and_grad(lambda z: loss(z, **options))


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=tolerance * np.abs(expected[1]).max())


def mesh_of(*names):
    shape = (4,) if len(names) == 1 else (2, 2)
    return Mesh(np.asarray(jax.devices()[:4]).reshape(shape), names, axis_types=(AxisType.Auto,) * len(shape))


def check_gradient(run, z, slope, rng):
    """Along one random direction, in which every entry counts, by the compiled program at hand."""
    direction = np.where(np.isnan(z), 0, rng.normal(size=z.shape))
    change = (run(z + STEP * direction)[0] - run(z - STEP * direction)[0]) / (2 * STEP)
    np.testing.assert_allclose(np.sum(slope * direction), change, rtol=1e-6, atol=1e-7)


def test_every_objective_has_a_reference():
    assert set(cases.OBJECTIVES) == set(brute_force.REFERENCES)
    assert set(cases.HIGHER_ORDER) == set(brute_force.OF_PAIRS)


@every(cases.PLAIN)
def test_declaration_is_that_of_the_signature(case):
    takes = case.takes
    for option in ("axis_name", "block_size", "normalize", "global_views"):
        assert getattr(takes, option) == (option in takes.options)
    assert takes.queue is None or takes.options[takes.queue] is None
    assert not takes.mask or takes.options["mask"] is None
    assert not takes.key or takes.options.get("key") is None
    assert takes.terms is None or takes.operands is losses.Operands.PAIR


@every(cases.ALL)
def test_one_program_or_many_give_the_same(x64, rng, case):
    """vmap over problems against the loops and finite differences; jit over a split batch; shard_map over one and two
    mesh axes with the gradient outside and inside, in blocks smaller than a device's share; blocks with a full mask.
    """
    takes, run, z = case.takes, case.run, case.draw(rng, N, D)
    step = STEP * rng.normal(size=z.shape)
    values, slopes = jax.jit(jax.vmap(both(run)))(np.stack([z, z + step, z - step, z[:, ::-1], 2 * z]))
    expected = values[0], slopes[0]
    np.testing.assert_allclose(expected[0], case.by_hand(z), rtol=1e-11, atol=1e-11)
    if case.reference.derivative:
        change = (values[1] - values[2]) / 2
        np.testing.assert_allclose(np.sum(slopes[0] * step), change, rtol=1e-6, atol=1e-7 * STEP)
    if not takes.key:  # the order of the instances does not count
        np.testing.assert_allclose(values[3], expected[0], rtol=1e-11)
    if takes.normalize:  # nor does length
        np.testing.assert_allclose(values[4], expected[0], rtol=1e-11)

    sharded = jax.device_put(z, NamedSharding(mesh_of("data"), P(None, "data")))
    close(jax.jit(both(run))(sharded), expected)
    blocks = {"block_size": 2} if takes.block_size else {}
    if takes.axis_name:
        local = functools.partial(run, axis_name="data")
        whole = jax.shard_map(local, mesh=mesh_of("data"), in_specs=P(None, "data"), out_specs=P())
        close(jax.jit(jax.value_and_grad(whole))(z), expected)
        local = both(run, axis_name=("data", "fsdp"), **blocks)
        rows = P(None, ("data", "fsdp"))
        inside = jax.shard_map(local, mesh=mesh_of("data", "fsdp"), in_specs=rows, out_specs=(P(), rows))
        close(jax.jit(inside)(z), expected)
    if blocks or takes.mask:
        full = {"mask": np.ones(z.shape[:2], bool)} if takes.mask else {}
        close(jax.jit(both(run, **blocks, **full))(z), expected)


@every(cases.ALL, lambda case: case.takes.mask)
def test_masked_batches_split_over_devices(x64, rng, case):
    takes, run, z = case.takes, case.run, case.draw(rng, 8, 4)
    mask = cases.some_missing(rng, z.shape[:2])
    z = np.where(mask[:, :, None], z, np.nan)
    program = jax.jit(lambda z: both(run, mask=mask)(z))
    expected = program(z)
    np.testing.assert_allclose(expected[0], case.by_hand(z, mask), rtol=1e-11, atol=1e-11)
    assert np.isfinite(expected[1]).all()
    np.testing.assert_array_equal(np.asarray(expected[1])[~mask], 0)
    if case.reference.derivative:
        check_gradient(program, z, expected[1], rng)
    if takes.axis_name:
        split = P(None, "data")
        local = lambda z, m: both(run, mask=m, axis_name="data")(z)  # noqa: E731
        mapped = jax.shard_map(local, mesh=mesh_of("data"), in_specs=(split, split), out_specs=(P(), split))
        close(jax.jit(mapped)(z, mask), expected)


@every(cases.ALL)
def test_single_and_half_precision(rng, case):
    """bfloat16 is summed in float32; coinciding views, zero vectors, n = 2 and k = 8 are finite; symmetries hold."""
    traced = []

    def counted(z):
        traced.append(z.shape)
        return case.run(z)

    run = jax.jit(jax.value_and_grad(counted))
    z = jnp.asarray(case.draw(rng, 8, 5, views=4), jnp.bfloat16)
    found, exact = run(z), run(z.astype(jnp.float32))
    assert found[0].dtype == jnp.float32
    assert found[1].dtype == jnp.bfloat16
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-6)
    np.testing.assert_allclose(found[1].astype(jnp.float32), exact[1], rtol=0.01, atol=1e-6)
    z = z.astype(jnp.float32)
    same = jnp.broadcast_to(z[:1, :1], z.shape)
    aligned = jnp.broadcast_to(z[:1], z.shape)
    constant = z.at[:, :, 0].set(1)
    for bad in (same, aligned, constant, jnp.zeros_like(same), z.at[0].set(0)):
        value, slope = run(bad)
        assert np.isfinite(value)
        assert np.isfinite(slope).all()
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0].astype(np.float32)
    moved = [z[:, rng.permutation(8)]] if not case.takes.key else []
    moved += [z @ rotation] if case.reference.rotation else []
    moved += [z[::-1]] if case.reference.view_order else []
    for other in moved:
        np.testing.assert_allclose(run(other)[0], exact[0], rtol=2e-6)
    assert len(traced) == 2  # one program each for two dtypes: nothing traces again
    value, slope = run(case.draw(rng, 2, 3, views=8).astype(np.float32))
    assert np.isfinite(value)
    assert np.isfinite(slope).all()


@every(cases.ALL, lambda case: "temperature" in case.takes.options and case.reference.small_temperature)
def test_a_temperature_of_a_thousandth(rng, case):
    """Fixed before tracing and traced: both finite, and right to float32."""
    z = case.draw(rng, 5, 4).astype(np.float32)
    exact = case.by_hand(np.float64(z), temperature=1e-3) if case in cases.PLAIN else None
    run = jax.jit(both(case.run, temperature=1e-3))
    traced = jax.jit(jax.value_and_grad(lambda z, t: case.run(z, temperature=t)))
    values = []
    for value, slope in (run(z), traced(z, jnp.float32(1e-3))):
        assert np.isfinite(slope).all()
        values.append(value)
    np.testing.assert_allclose(values, values[0] if exact is None else exact, rtol=1e-4, atol=2e-3)


@every(cases.ALL, lambda case: case.takes.block_size and case.reference.linear_memory)
def test_memory_in_blocks_grows_with_n_only(case):
    """Eight times the instances: not sixty-four times the temporaries, forward and backward."""
    k = cases.VIEWS[case.takes.operands]

    def temporaries(n):
        z = jax.ShapeDtypeStruct((k, n, 4), jnp.float32)
        program = jax.jit(both(case.run, block_size=64)).lower(z).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert temporaries(8 * 512) < 10 * temporaries(512)


def test_import_is_light():
    import subprocess
    import sys

    code = (
        "import jax, sys, time; t = time.perf_counter(); import mvcl.losses; dt = time.perf_counter() - t;"
        "heavy = {'tensorflow', 'orbax', 'grain', 'sklearn', 'tensorflow_datasets'} & set(sys.modules);"
        "assert not heavy, heavy; print(dt)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(2)
    ]
    assert min(times) < 1.0, times
