"""Counts of benchmarks/scale.py against manual counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from benchmarks import scale

D = 8


def program(mesh):
    """Three times: gather 4 rows of 6 floats from each, multiply, scatter the sum; then a sum and a maximum."""

    def local(x, w):  # (4, 6), (6, 6)
        def turn(x, _):
            whole = lax.all_gather(x, "data", tiled=True)  # (32, 6)
            return lax.psum_scatter(whole @ w, "data", tiled=True), None

        x, _ = lax.scan(turn, x, length=3)
        return lax.psum(jnp.sum(x), "data") + lax.pmax(jnp.max(x), "data")

    rows = PartitionSpec("data")
    return jax.shard_map(local, mesh=mesh, in_specs=(rows, PartitionSpec()), out_specs=PartitionSpec())


GATHERED = 32 * 6 * 4 * 7 / 8
BY_HAND = 3 * 2 * GATHERED + 2 * (2 * 4 * 7 / 8)


def test_the_traced_program():
    mesh = AbstractMesh((D,), ("data",), axis_types=(AxisType.Auto,))
    shapes = (jax.ShapeDtypeStruct((32, 6), jnp.float32), jax.ShapeDtypeStruct((6, 6), jnp.float32))
    count = scale.traced(jax.make_jaxpr(program(mesh))(*shapes).jaxpr, D)
    assert count.traffic == {
        "all-gather": 3 * GATHERED,
        "reduce-scatter": 3 * GATHERED,
        "all-reduce": 2 * (2 * 4 * 7 / 8),
    }
    assert count.flops == 3 * 2 * 32 * 6 * 6
    assert count.in_loops == 0


def test_the_compiled_program():
    mesh = Mesh(np.asarray(jax.devices()), ("data",), axis_types=(AxisType.Auto,))
    put = lambda shape, *spec: jax.ShapeDtypeStruct(  # noqa: E731
        shape, jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec))
    )
    text = jax.jit(program(mesh)).lower(put((32, 6), "data"), put((6, 6))).compile().as_text()
    assert scale.compiled(text, D).bytes == BY_HAND


def test_counts_loops_of_unknown_length_separately():
    mesh = AbstractMesh((D,), ("data",), axis_types=(AxisType.Auto,))

    def local(x):
        return lax.while_loop(
            lambda x: jnp.max(x) < 9, lambda x: lax.pmax(x, "data") + 1, lax.pmax(x, "data")
        )

    whole = jax.shard_map(
        local, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False
    )
    count = scale.traced(jax.make_jaxpr(whole)(jax.ShapeDtypeStruct((10,), jnp.float32)).jaxpr, D)
    assert (count.bytes, count.in_loops) == (2 * 40 * 7 / 8, 2 * 40 * 7 / 8)


def test_raises_on_an_unknown_collective():
    mesh = AbstractMesh((D,), ("data",), axis_types=(AxisType.Auto,))
    local = lambda x: lax.ragged_all_to_all(  # noqa: E731
        x, x, *(jnp.zeros(D, jnp.int32) for _ in range(4)), axis_name="data"
    )
    whole = jax.shard_map(
        local, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False
    )
    jaxpr = jax.make_jaxpr(whole)(jax.ShapeDtypeStruct((10,), jnp.float32)).jaxpr
    with pytest.raises(NotImplementedError, match="ragged_all_to_all"):
        scale.traced(jaxpr, D)


def test_counts_of_a_loss_equal_those_of_xla():
    numbers = scale.of_objective("mv_dhel", 3, 64, 8, D)
    assert numbers["bytes"] == pytest.approx(numbers["xla_bytes"], rel=1e-6)
    # 3 views gathered forward; backward 3 views again and 3 rows of log-sum-exps; and the scalars of the loss
    gathered = 2 * 3 * 64 * 8 * 4 * 7 / 8
    assert gathered < numbers["bytes"] < 1.3 * gathered


def test_vit_flops_by_hand():
    from mvcl import models

    config = models.ViT(patch=16, width=64, depth=2, heads=4)
    numbers = scale.of_encoder(config, 64)
    tokens, width = 17, 64
    block = 2 * tokens * width * (3 * width + width + 8 * width) + 2 * 2 * tokens * tokens * width
    patches = 2 * 16 * (16 * 16 * 3) * width
    # backward is twice forward, but the images have no gradient
    assert numbers["flops"] == pytest.approx(3 * 2 * block + 2 * patches, rel=1e-3)
    parameters = 12 * width**2 + 13 * width  # of a block, biases and two norms
    assert (
        numbers["parameters"] == 2 * parameters + (16 * 16 * 3 + 1) * width + (tokens + 1) * width + 2 * width
    )
