"""Statistics of the instances of all devices, for objectives without negatives."""

from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import lax

from mvcl import _checks, _numerics
from mvcl.losses import _views
from mvcl.losses._views import Embedded


def total(x: jax.Array, axis_name: str | None) -> jax.Array:
    """The sum over the devices of `axis_name`."""
    return x if axis_name is None else lax.psum(x, axis_name)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def moments(z: jax.Array, axis_name: str | None) -> jax.Array:
    """`(k, d, d)`: z_l^T z_l of (k, n, d) vectors, over all devices.

    Its derivative is one product in either mode: those by the two factors are transposes of each other.
    """
    return total(_numerics.inner("lia,lib->lab", z, z), axis_name)


@moments.defjvp
def _(
    axis_name: str | None, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (z,), (dz,) = primals, tangents
    half = _numerics.inner("lia,lib->lab", z, dz)
    return moments(z, axis_name), total(half + jnp.swapaxes(half, 1, 2), axis_name)


def counts(e: Embedded) -> jax.Array:
    """`(k,)`: how many instances have each view."""
    if e.keep is None:
        return jnp.full(e.z.shape[0], _views.rows_everywhere(e.z, e.axis_name), e.z.dtype)
    return total(jnp.sum(e.keep, axis=1, dtype=e.z.dtype), e.axis_name)


def centred(e: Embedded) -> tuple[jax.Array, jax.Array]:
    """`(k, n, d)` vectors less the mean of their view, zero where there is none; the means, `(k, 1, d)`."""
    there = None if e.keep is None else e.keep[:, :, None]
    mean = _numerics.mean_where(e.z, there, e.axis_name, axis=1)[:, None]
    return e.z - mean if there is None else jnp.where(there, e.z - mean, 0), mean


# View by view, here and below: XLA's sum over the leading axis takes ten times as long on CPU, and so does that in the
# derivative of an array that is broadcast along it.


def sum_of_views(z: jax.Array) -> jax.Array:
    """`(n, d)`: the sum of (k, n, d) vectors over the views."""
    return reduce(jnp.add, list(z))


def squared_distances(z: jax.Array, centre: jax.Array) -> jax.Array:
    """`(k, n)`: mean_a (z_lia - c_ia)² of (k, n, d) vectors and the (n, d) centres of the instances."""
    return jnp.stack([jnp.mean((view - centre) ** 2, axis=1) for view in z])


def mean_of_views(values: jax.Array, count: jax.Array) -> jax.Array:
    """Mean of `(k,)` values over the views that some instance has."""
    some = count > 0
    return jnp.sum(jnp.where(some, values, 0)) / jnp.maximum(jnp.sum(some), 1).astype(values.dtype)


def pull(e: Embedded, global_views: int | None) -> jax.Array:
    """mean_{l,i,d} (z_li - c_i)², c_i the mean of the first `global_views` views of instance i, None: of all.

    Instances that lack all of these views have no c_i and do not count.
    """
    k = e.z.shape[0]
    some = k if global_views is None else _checks.whole("global_views", global_views)
    if some > k:
        raise ValueError(f"global_views must be at most the number of views, {k}, got {global_views}")
    if e.keep is None:
        centre, there = sum_of_views(e.z[:some]) / some, None
    else:
        count = jnp.sum(e.keep[:some], axis=0, dtype=e.z.dtype)
        centre = sum_of_views(e.z[:some]) / jnp.maximum(count, 1)[:, None]
        there = e.keep & (count > 0)[None]
    return _numerics.mean_where(squared_distances(e.z, centre), there, e.axis_name)
