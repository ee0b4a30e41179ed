"""What every objective promises, one row each: devices, blocks, masks, vmap, precision, degenerate input,
retracing.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from mvcl import losses

K, N, D = 3, 16, 6


def of_pair(loss):
    return lambda z, **options: loss(z[0], z[1], **options)


def of_groups(loss):
    return lambda z, **options: loss(z[:1], z[1:], **options)


def no_options(loss, *names):
    """For losses that have no use for some of the common options."""
    return lambda z, **options: loss(z, **{k: v for k, v in options.items() if k not in names})


PAIRS = ("info_nce", "nt_xent", "dcl", "dhel", "rince", "siglip", "spectral", "byol")
VIEWS = ("mv_infonce", "mv_dhel", "mv_cl1", "mv_cl2", "poly_view", "sufficient_statistics", "poly_siglip")
LOSSES = {name: of_pair(getattr(losses, name)) for name in PAIRS}
LOSSES["byol"] = no_options(LOSSES["byol"], "block_size")
LOSSES |= {name: getattr(losses, name) for name in VIEWS}
LOSSES |= {
    "all_pairs(nt_xent)": losses.all_pairs(losses.nt_xent),
    "all_pairs(info_nce)": losses.all_pairs(losses.info_nce),
    "one_vs_rest(nt_xent)": losses.one_vs_rest(losses.nt_xent),
    "dsf": of_groups(functools.partial(losses.dsf, mean_resultant="exact")),
    "cross_pairs(info_nce)": of_groups(losses.cross_pairs(losses.info_nce)),
    "mean_pair(nt_xent)": of_groups(losses.mean_pair(losses.nt_xent)),
}
# One of each way of computing in every run; the others take the same paths and minutes more.
CORE = {
    *("nt_xent", "dhel", "siglip", "spectral", "mv_infonce", "mv_dhel", "poly_view", "sufficient_statistics"),
    *("one_vs_rest(nt_xent)", "dsf"),
}


def losses_marked(names):
    marks = {name: () if name in CORE else (pytest.mark.slow,) for name in names}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks[name]) for name in names])


every_loss = losses_marked(list(LOSSES))


def draw(rng, name, shape=(K, N, D)):
    views = 2 if name in PAIRS else shape[0]
    return rng.normal(size=(views, *shape[1:]))


def both(loss, **options):
    return jax.value_and_grad(lambda z: loss(z, **options))


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance)
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=tolerance * np.abs(expected[1]).max())


@every_loss
def test_one_program_or_many_give_the_same(x64, rng, name):
    """Blocks, a full mask, vmap over problems, jit over eight devices, shard_map with the gradient outside
    and inside.
    """
    loss, z = LOSSES[name], draw(rng, name)
    expected = jax.jit(both(loss))(z)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    split = P(None, "data")
    sharded = jax.device_put(z, NamedSharding(mesh, split))
    close(jax.jit(both(loss))(sharded), expected)
    for checked, block_size in ((True, None), (False, 3)):
        local = functools.partial(loss, axis_name="data", block_size=block_size)
        whole = jax.shard_map(local, mesh=mesh, in_specs=split, out_specs=P(), check_vma=checked)
        close(jax.jit(jax.value_and_grad(whole))(sharded), expected)
    inside = jax.shard_map(
        jax.value_and_grad(functools.partial(loss, axis_name="data", block_size=3)),
        mesh=mesh,
        in_specs=split,
        out_specs=(P(), split),
    )
    close(jax.jit(inside)(sharded), expected)
    close(jax.jit(both(loss, block_size=5))(z), expected)
    present = np.ones(z.shape[:2], bool)
    close(jax.jit(both(loss, mask=present))(z), expected)
    several = np.stack([z[:, ::-1], z, 2 * z])
    swept = jax.jit(jax.vmap(both(loss)))(several)
    close([a[1] for a in swept], expected)
    np.testing.assert_allclose(swept[0][2], expected[0], rtol=1e-12)  # length does not count


@every_loss
def test_masked_batches_split_over_devices(x64, rng, name):
    loss, z = LOSSES[name], draw(rng, name)
    mask = rng.random(z.shape[:2]) < 0.7
    mask[:, 0] = True
    z = np.where(mask[:, :, None], z, np.nan)
    expected = jax.jit(lambda z, m: jax.value_and_grad(loss)(z, mask=m))(z, mask)
    assert np.isfinite(expected[0])
    assert np.isfinite(expected[1]).all()
    np.testing.assert_array_equal(np.asarray(expected[1])[~mask], 0)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    split = P(None, "data")

    def local(z, m):
        return jax.value_and_grad(loss)(z, mask=m, axis_name="data")

    mapped = jax.shard_map(local, mesh=mesh, in_specs=(split, split), out_specs=(P(), split))
    close(jax.jit(mapped)(z, mask), expected)


@every_loss
def test_gradient_is_the_numerical_one(x64, rng, name):
    loss, z = LOSSES[name], jnp.asarray(draw(rng, name, (3, 4, 3)))
    chex.assert_numerical_grads(jax.jit(loss), (z,), order=1, modes=["rev"], atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("name", ["nt_xent", "mv_dhel", "dsf"])
def test_second_derivative_of_the_dense_path(x64, rng, name):
    loss, z = LOSSES[name], jnp.asarray(draw(rng, name, (3, 3, 2)))
    hessian = jax.jit(jax.hessian(loss))(z).reshape(z.size, z.size)
    gradient = jax.jit(jax.grad(loss))
    step = 1e-6 * np.eye(z.size).reshape(-1, *z.shape)
    columns = [(gradient(z + e) - gradient(z - e)).ravel() / 2e-6 for e in step]
    np.testing.assert_allclose(hessian, np.stack(columns, 1), atol=1e-6 * np.abs(hessian).max())
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-9 * np.abs(hessian).max())


@every_loss
def test_single_and_half_precision(rng, name):
    """bfloat16 is summed in float32; coinciding views, zero vectors, n = 2 and k = 8 are finite; symmetries hold."""
    loss = LOSSES[name]
    traced = []

    def counted(z):
        traced.append(z.shape)
        return loss(z)

    run = jax.jit(jax.value_and_grad(counted))
    z = jnp.asarray(draw(rng, name, (4, 8, 5)), jnp.bfloat16)
    found, exact = run(z), run(z.astype(jnp.float32))
    assert found[0].dtype == jnp.float32
    assert found[1].dtype == jnp.bfloat16
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-6)
    np.testing.assert_allclose(found[1].astype(jnp.float32), exact[1], rtol=0.01, atol=1e-6)
    z = z.astype(jnp.float32)
    same = jnp.broadcast_to(z[:1, :1], z.shape)
    for bad in (same, jnp.zeros_like(same), z.at[0].set(0)):
        value, slope = run(bad)
        assert np.isfinite(value)
        assert np.isfinite(slope).all()
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0].astype(np.float32)
    moved = [z[:, rng.permutation(8)], z @ rotation]
    if name in VIEWS or name.startswith(("all_pairs(nt", "one_vs")):
        moved.append(z[::-1])
    for other in moved:
        np.testing.assert_allclose(run(other)[0], exact[0], rtol=2e-6)
    assert len(traced) == 2  # one program each for two dtypes: nothing traces again
    value, slope = run(draw(rng, name, (8, 2, 3)).astype(np.float32))
    assert np.isfinite(value)
    assert np.isfinite(slope).all()


@losses_marked([n for n in LOSSES if n not in ("rince", "siglip", "poly_siglip", "spectral", "byol", "dsf")])
def test_a_temperature_of_a_thousandth(rng, name):
    """Fixed before tracing and traced: both finite, and right to float32."""
    z = draw(rng, name, (3, 5, 4)).astype(np.float32)
    loss = LOSSES[name]
    run = jax.jit(jax.value_and_grad(lambda z: loss(z, temperature=1e-3)))
    traced = jax.jit(jax.value_and_grad(lambda z, t: loss(z, temperature=t)))
    with jax.enable_x64(True):
        exact = jax.jit(jax.value_and_grad(lambda z: loss(z, temperature=1e-3)))(z.astype(np.float64))
    for value, slope in (run(z), traced(z, jnp.float32(1e-3))):
        assert np.isfinite(slope).all()
        np.testing.assert_allclose(value, exact[0], rtol=1e-4, atol=2e-3)


@losses_marked([n for n in LOSSES if n != "byol"])
def test_memory_in_blocks_grows_with_n_only(name):
    """Eight times the instances: not sixty-four times the temporaries, forward and backward."""

    def temporaries(n):
        z = jax.ShapeDtypeStruct((2 if name in PAIRS else 3, n, 4), jnp.float32)
        program = jax.jit(jax.value_and_grad(lambda z: LOSSES[name](z, block_size=64))).lower(z).compile()
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
