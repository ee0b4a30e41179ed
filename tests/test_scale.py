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


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("replica_groups={{0,1},{2,3}}, dimensions={0}", [[0, 1], [2, 3]]),
        ("replica_groups={}, to_apply=%add", [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("replica_groups=[2,4]<=[8], to_apply=%add", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%add", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("replica_groups=mesh['a'=4,'b'=2,'c'=1] {'b'}, metadata={}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("replica_groups=mesh['a'=4,'b'=2] {'a'}, dimensions={0}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (
            "replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}",
            [[0, 1], [2, 3], [4, 5], [6, 7]],
        ),
        ("channel_id=1, source_target_pairs={{0,1},{1,2}}", [[0, 1], [1, 2]]),
    ],
)
def test_groups_of_a_collective(text, groups):
    assert scale.replica_groups(text, D).tolist() == groups


def test_raises_on_groups_that_it_cannot_read():
    with pytest.raises(NotImplementedError, match="are not counted"):
        scale.replica_groups("replica_groups=mesh['a'=8] {'a':(1)2}, dimensions={0}", D)
    with pytest.raises(NotImplementedError, match="are not counted"):
        scale.replica_groups("dimensions={0}", D)


def test_bytes_from_other_slices():
    slices = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    everyone, pairs = np.arange(8)[None], np.arange(8).reshape(4, 2)
    # inside a slice 3/4 of 80 bytes are scattered and gathered, then a quarter goes to and from the other slice
    assert scale.crossing("all-reduce", 80.0, everyone, slices) == 2 * 80 / 4 * 1 / 2
    assert (
        scale.crossing("all-gather", 80.0, everyone, slices) == 10
    )  # the row of the other slice's counterpart
    assert scale.crossing("all-to-all", 80.0, everyone, slices) == 40
    assert scale.crossing("reduce-scatter", 80.0, pairs, slices) == 0
    ring = np.stack([np.arange(8), np.roll(np.arange(8), -1)], axis=1)
    assert scale.crossing("collective-permute", 80.0, ring, slices) == 80 * 2 / 8
    inside, across = scale.received("all-reduce", 80.0, 4), scale.received("all-reduce", 80.0 / 4, 2)
    assert inside + across == scale.received("all-reduce", 80.0, 8)


def test_parameters_are_gathered_inside_a_slice():
    """Of the parameters only the gradient crosses; where a mesh does not know the slices, the parameters cross too."""
    from mvcl import models
    from mvcl.training import Mesh

    def count(mesh, slices=None):
        encoder = models.ViT(patch=8, width=64, depth=2, heads=4)
        return scale.of_slices(encoder, mesh, 16, 2, 16, slices)

    one, two, four = (count(Mesh(slices=s, data=8 // s)) for s in (1, 2, 4))
    assert one["across"] == 0
    gradient = one["parameters"]
    rows = (
        2 * 2 * 16 * 128 * 4
    )  # bytes of the embeddings of both views, gathered and their gradient scattered
    for found, slices in ((two, 2), (four, 4)):
        least = 2 * gradient * (slices - 1) / 8
        assert least < found["across"] < least + 4 * rows
        assert found["across"] + found["within"] == pytest.approx(one["within"])
    split = count(Mesh(slices=2, data=1, fsdp=4))
    assert split["across"] == pytest.approx(two["across"], rel=0.01)
    unaware = count(Mesh(data=1, fsdp=8), slices=2)
    assert unaware["across"] > split["across"] + 0.9 * 2 * gradient / 8
