"""Blocks smaller than a device's share, and a batch split over two mesh axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, PartitionSpec

from mvcl import losses


@pytest.mark.parametrize("axes", ["data", ("data", "fsdp")])
@pytest.mark.parametrize("name", ["mv_infonce", "mv_dhel", "sufficient_statistics", "m3g"])
def test_blocks_across_devices(rng, name, axes):
    z = jnp.asarray(rng.normal(size=(3, 32, 8)), jnp.float32)
    shape, names = ((8,), ("data",)) if axes == "data" else ((4, 2), axes)
    mesh = Mesh(np.asarray(jax.devices()).reshape(shape), names, axis_types=(AxisType.Auto,) * len(shape))
    rows = PartitionSpec(None, axes)

    def local(z):
        return losses.VIEW_LOSSES[name](z, axis_name=axes, block_size=2)

    value, gradient = jax.jit(jax.value_and_grad(losses.VIEW_LOSSES[name]))(z)
    outside = jax.value_and_grad(jax.shard_map(local, mesh=mesh, in_specs=rows, out_specs=PartitionSpec()))
    inside = jax.shard_map(
        jax.value_and_grad(local), mesh=mesh, in_specs=rows, out_specs=(PartitionSpec(), rows)
    )
    for found, slope in (jax.jit(outside)(z), jax.jit(inside)(z)):
        np.testing.assert_allclose(found, value, rtol=2e-6)
        np.testing.assert_allclose(slope, gradient, atol=2e-6)
