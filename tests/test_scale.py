"""Counts of benchmarks/collectives.py against manual counts."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from benchmarks import collectives

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


def test_the_traced_program():
    mesh = AbstractMesh((D,), ("data",), axis_types=(AxisType.Auto,))
    shapes = (jax.ShapeDtypeStruct((32, 6), jnp.float32), jax.ShapeDtypeStruct((6, 6), jnp.float32))
    count = collectives.traced(jax.make_jaxpr(program(mesh))(*shapes).jaxpr, D)
    assert count.traffic == {
        "all-gather": 3 * GATHERED,
        "reduce-scatter": 3 * GATHERED,
        "all-reduce": 2 * (2 * 4 * 7 / 8),
    }
    assert count.flops == 3 * 2 * 32 * 6 * 6
    assert count.in_loops == 0


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("replica_groups={{0,1},{2,3}}, dimensions={0}", [[0, 1], [2, 3]]),
        ("replica_groups={}, to_apply=%add", [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%add", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("replica_groups=mesh['a'=4,'b'=2,'c'=1] {'b'}, metadata={}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("channel_id=1, source_target_pairs={{0,1},{1,2}}", [[0, 1], [1, 2]]),
    ],
)
def test_groups_of_a_collective(text, groups):
    assert collectives.replica_groups(text, D).tolist() == groups
