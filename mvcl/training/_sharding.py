"""How objective and microbatches are split over devices."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from mvcl import losses, methods
from mvcl.training._config import Config

BATCH = PartitionSpec(("data", "fsdp"))  # rows of a batch over all devices


def objective(config: Config, learner: methods.Learner, mesh: Mesh | AbstractMesh) -> methods.OfViews:
    """The objective of (k, n, d) views, or of a (p, k, n, d) stack of problems, whose rows are split over the mesh.

    An objective with `axis_name` computes its rows of the similarities on each device; others are computed on the
    gathered embeddings; the objective of groups is computed on the device of each group. A `mask` (k, n) is split as
    the views are; other keywords, such as a queue, are replicated.
    """
    takes, group = losses.takes(config.objective), config.train.group
    of_views = losses.of_views(config.objective, config.views.global_views)
    of_views = partial(of_views, **learner.objective_options)
    if group is not None:
        of_views = in_groups(of_views, takes, group)
    if mesh.size == 1:
        return of_views
    axes: Any = tuple(name for name in mesh.axis_names if mesh.shape[name] > 1)
    axes = axes[0] if len(axes) == 1 else axes
    whole = PartitionSpec()

    def gathered(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
        everywhere = jax.lax.with_sharding_constraint((z, extra), NamedSharding(mesh, whole))
        return of_views(everywhere[0], **everywhere[1])

    if group is None and not takes.axis_name:
        return gathered

    def local(z: jax.Array, extra: dict[str, jax.Array]) -> tuple[jax.Array, methods.Measures]:
        if group is not None:
            return jax.lax.pmean(of_views(z, **extra), axes)
        return of_views(z, axis_name=axes, **extra)

    def split(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
        if (more := -z.shape[-2] % mesh.size) and (takes.key or not takes.mask):
            return gathered(z, **extra)
        places = {name: takes.axis_of_instances(name, x) for name, x in extra.items()}
        if more:  # instances without any view, which do not count
            extra = {"mask": jnp.ones((z.shape[-3], z.shape[-2]), bool), **extra}
            places["mask"] = 1
            z = _padded(z, z.ndim - 2, more)
            extra = {name: _padded(x, places[name], more) for name, x in extra.items()}
        specs = {n: whole if at is None else PartitionSpec(*(None,) * at, axes) for n, at in places.items()}
        in_specs = PartitionSpec(*(None,) * (z.ndim - 2), axes), specs
        return jax.shard_map(local, mesh=mesh, in_specs=in_specs, out_specs=whole)(z, extra)

    return split


def _padded(x: jax.Array, axis: int | None, more: int) -> jax.Array:
    return jnp.pad(x, [(0, more if at == axis else 0) for at in range(x.ndim)])


def in_groups(of_views: methods.OfViews, takes: losses.Takes, group: int) -> methods.OfViews:
    """The mean of an objective over groups of consecutive instances; of a stack of problems, of the groups' sums.

    The groups are taken one after the other: the solver of each stops by itself, and one tensor of costs is held.
    """

    def mean(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
        places = {name: takes.axis_of_instances(name, x) for name, x in extra.items()}
        whole = {name: x for name, x in extra.items() if places[name] is None}
        split = {name: _cut(extra[name], axis, group) for name, axis in places.items() if axis is not None}
        groups = _cut(z, z.ndim - 2, group), split
        values = jax.lax.map(lambda given: of_views(given[0], **given[1], **whole), groups)
        return jax.tree.map(lambda x: x.mean(0), values)

    return mean


def _cut(x: jax.Array, axis: int, group: int) -> jax.Array:
    """(groups, ...): the slices of an axis."""
    shape = (*x.shape[:axis], x.shape[axis] // group, group, *x.shape[axis + 1 :])
    return jnp.moveaxis(x.reshape(shape), axis, 0)


def microbatches(microbatch: int | None, rows: int, mesh: Mesh) -> methods.Microbatches | None:
    """Microbatches that take rows of every device, so that all devices share each of them; None: the batch is one."""
    if microbatch is None or microbatch >= rows:
        return None
    if rows % microbatch:
        raise ValueError(f"train.microbatch must divide a device's {rows} examples, got {microbatch}")
    count = rows // microbatch
    over_devices = NamedSharding(mesh, PartitionSpec(None, ("data", "fsdp")))
    constrain = partial(jax.lax.with_sharding_constraint, shardings=over_devices)

    def split(inputs: Any) -> Any:
        def cut(x: jax.Array) -> jax.Array:
            x = x.reshape((mesh.size, count, microbatch, *x.shape[1:])).swapaxes(0, 1)
            return constrain(x.reshape((count, mesh.size * microbatch, *x.shape[3:])))

        return jax.tree.map(cut, inputs)

    def join(outputs: jax.Array) -> jax.Array:
        tail = outputs.shape[2:]
        outputs = constrain(outputs).reshape((count, mesh.size, outputs.shape[1] // mesh.size, *tail))
        joined = outputs.swapaxes(0, 1).reshape((-1, *tail))
        return jax.lax.with_sharding_constraint(joined, NamedSharding(mesh, BATCH))

    return split, join
