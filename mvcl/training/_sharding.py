"""Devices: their mesh, peak and cache of programs; how batch, objective, microbatches and state are split over them."""

import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from mvcl import losses, methods
from mvcl.training import _config
from mvcl.training._config import Config

BATCH = PartitionSpec(("data", "fsdp"))
"""Rows of a batch over all devices."""
# Dense bfloat16 TFLOP/s of one jax device, as the vendors state it, by the start of its `device_kind`.
PEAK_TFLOPS = {
    "TPU v2": 22.5,  # per core: jax has two devices per chip
    "TPU v3": 61.5,
    "TPU v4 lite": 138.0,
    "TPU v4": 275.0,
    "TPU v5 lite": 197.0,
    "TPU v5e": 197.0,
    "TPU v5": 459.0,
    "TPU v6 lite": 918.0,
    "TPU v6e": 918.0,
    "NVIDIA A100": 312.0,
    "NVIDIA H100 PCIe": 756.0,
    "NVIDIA H100": 989.0,
    "NVIDIA H200": 989.0,
    "NVIDIA L4": 121.0,
    "NVIDIA L40": 181.0,
    "NVIDIA L40S": 362.0,
    "Tesla V100": 125.0,
    "Tesla T4": 65.0,
}


def make_mesh(options: _config.Mesh) -> Mesh:
    """Devices in axes `data` and `fsdp`.

    Slices follow one another along `data`, so that `fsdp` stays inside a slice: gathers of parameters use its fast
    network, and the gradient's all-reduce is the one collective of the parameters that crosses slices. An axis of its
    own would change no collective, since the batch is always split over slices and `data` together.

    Raises:
      ValueError: there are too few devices, or other slices than mesh.slices.
    """
    slices, fsdp, available = options.slices, options.fsdp, jax.device_count()
    data = options.data if options.data != -1 else max(available // (slices * fsdp), 1)
    used = slices * data * fsdp
    if used > available or (jax.process_count() > 1 and used != available):
        named = f"mesh.slices * mesh.data * mesh.fsdp = {slices} * {data} * {fsdp}"
        if slices == 1:
            named = f"mesh.data * mesh.fsdp = {data} * {fsdp}"
        raise ValueError(f"{named} devices, but there are {available}")
    return Mesh(
        arranged(jax.devices(), slices, data, fsdp),
        ("data", "fsdp"),
        axis_types=(AxisType.Auto, AxisType.Auto),
    )


def arranged(devices: Sequence[Any], slices: int, data: int, fsdp: int) -> np.ndarray:
    """(slices * data, fsdp) devices, those of a slice in consecutive rows.

    TPUs tell their slice, and are placed by their position in it if there are several. CPU and GPU devices are taken
    in their order, which is that of the processes.

    Raises:
      ValueError: TPUs are in another number of slices, or a slice has other than data * fsdp devices.
    """
    found = Counter(device.slice_index for device in devices if device.platform == "tpu")
    if not found or (slices == 1 and len(found) == 1):
        return np.asarray(devices[: slices * data * fsdp]).reshape(slices * data, fsdp)
    if len(found) != slices:
        raise ValueError(
            f"mesh.slices = {slices}, but the devices are in {len(found)} slices; use --mesh.slices {len(found)}"
        )
    if set(found.values()) != {data * fsdp}:
        sizes = ", ".join(str(found[index]) for index in sorted(found))
        raise ValueError(
            f"mesh.data * mesh.fsdp = {data} * {fsdp} must be all devices of each slice; the slices have {sizes}"
        )
    return mesh_utils.create_hybrid_device_mesh((data, fsdp), (slices, 1), devices)


def rows_per_device(config: Config, examples: int, mesh: Mesh, last_batch: bool) -> int:
    """Examples per device of a batch; `last_batch`: the examples that are left at the end of an epoch are a batch too.

    Raises:
      ValueError: a batch is larger than the split, or does not divide over the devices or into groups.
    """
    n, group = config.examples, config.train.group
    if n > examples:
        raise ValueError(
            f"train.batch_size must be at most the {examples} training examples, got a batch of {n}"
        )
    rows, left = divmod(n, mesh.size)
    if left:
        sizes = [size for size in (n - left, n - left + mesh.size) if 0 < size <= examples]
        use = f"use --train.batch-size {' or '.join(map(str, sizes))}, or " if sizes else "use "
        raise ValueError(
            f"a batch of {n} examples does not divide over {mesh.size} devices; {use}fewer devices with --mesh.data"
        )
    last = examples % n if last_batch else 0
    if last == 1:
        raise ValueError(
            f"the last batch of an epoch would have one example, which has no negatives; use another "
            f"--train.batch-size than {n}, or leave the last batch out"
        )
    if last % mesh.size:
        raise ValueError(
            f"the last batch of an epoch has {last} examples, which do not divide over {mesh.size} devices; use "
            "--mesh.data 1, another --train.batch-size, or leave the last batch out"
        )
    for count, batch in ((rows, "batch"), (last // mesh.size, "last batch of an epoch")):
        if group is not None and count % group:
            raise ValueError(
                f"train.group must divide the {count} examples of a device's {batch}, got {group}; use fewer devices "
                "with --mesh.data, or a larger --train.batch-size"
            )
    return rows


def sharded(of_views: methods.OfViews, takes: losses.Takes, mesh: Mesh, group: int | None) -> methods.OfViews:
    """The objective of (k, n, d) views, or of a (p, k, n, d) stack of problems, whose rows are split over the mesh.

    An objective with `axis_name` computes its rows of the similarities on each device; others are computed on the
    gathered embeddings; the objective of groups is computed on the device of each group. A `mask` (k, n) is split as
    the views are; other keywords, such as a queue, are replicated.
    """
    if group is not None:
        of_views = in_groups(of_views, takes, group)
    if mesh.size == 1:
        return of_views
    axes: Any = tuple(name for name in mesh.axis_names if mesh.shape[name] > 1)
    axes = axes[0] if len(axes) == 1 else axes
    whole = PartitionSpec()
    if group is None and not takes.axis_name:

        def gathered(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
            everywhere = jax.lax.with_sharding_constraint((z, extra), NamedSharding(mesh, whole))
            return of_views(everywhere[0], **everywhere[1])

        return gathered

    def local(z: jax.Array, extra: dict[str, jax.Array]) -> tuple[jax.Array, methods.Measures]:
        if group is not None:
            return jax.lax.pmean(of_views(z, **extra), axes)
        return of_views(z, axis_name=axes, **extra)

    def split(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
        places = {name: takes.axis_of_instances(name, x) for name, x in extra.items()}
        specs = {
            name: whole if axis is None else PartitionSpec(*(None,) * axis, axes)
            for name, axis in places.items()
        }
        by_row = PartitionSpec(*(None,) * (z.ndim - 2), axes)
        return jax.shard_map(local, mesh=mesh, in_specs=(by_row, specs), out_specs=whole)(z, extra)

    return split


def in_groups(of_views: methods.OfViews, takes: losses.Takes, group: int) -> methods.OfViews:
    """The mean of an objective over groups of consecutive instances.

    Of a stack of problems, the mean of the groups' sums; each group's problems are solved one from another.

    The groups are taken one after the other: the solver of each stops by itself, and one tensor of costs is held.
    """

    def mean(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
        places = {name: takes.axis_of_instances(name, x) for name, x in extra.items()}
        whole = {name: x for name, x in extra.items() if places[name] is None}
        split = {name: _cut(extra[name], axis, group) for name, axis in places.items() if axis is not None}

        def of_group(given: tuple[jax.Array, dict[str, jax.Array]]) -> tuple[jax.Array, methods.Measures]:
            return of_views(given[0], **given[1], **whole)

        values = jax.lax.map(of_group, (_cut(z, z.ndim - 2, group), split))
        return jax.tree.map(lambda x: x.mean(0), values)

    return mean


def _cut(x: jax.Array, axis: int, group: int) -> jax.Array:
    """(groups, ...): the slices of an axis."""
    shape = (*x.shape[:axis], x.shape[axis] // group, group, *x.shape[axis + 1 :])
    return jnp.moveaxis(x.reshape(shape), axis, 0)


def microbatches(microbatch: int, rows: int, mesh: Mesh) -> methods.Microbatches:
    """Microbatches that take rows of every device, so that all devices share each of them."""
    if rows % microbatch:
        raise ValueError(
            f"train.microbatch must divide the {rows} examples of a device's batch, got {microbatch}"
        )
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


def placed(x: jax.ShapeDtypeStruct, mesh: Mesh) -> jax.ShapeDtypeStruct:
    """A shape with its sharding: over `fsdp` along the longest divisible axis, or replicated if there is none."""
    devices = mesh.shape["fsdp"]
    axes = [a for a, size in enumerate(x.shape) if devices > 1 and size % devices == 0]
    split: tuple[str | None, ...] = ()
    if axes and np.prod(x.shape) >= 1024:  # gathering a smaller array costs more than replicating it
        longest = max(axes, key=lambda a: x.shape[a])
        split = tuple("fsdp" if a == longest else None for a in range(x.ndim))
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, PartitionSpec(*split)))


def peak_flops(tflops: float | None = None) -> float | None:
    """Peak FLOP/s of one device: as given, or of the device's kind; None if unknown."""
    if tflops is None:
        kind = jax.devices()[0].device_kind
        known = [name for name in PEAK_TFLOPS if kind.startswith(name)]
        tflops = PEAK_TFLOPS[max(known, key=len)] if known else None
    return None if tflops is None else tflops * 1e12


def compilation_cache() -> None:
    """Cache compiled programs in MVCL_CACHE or ~/.cache/mvcl, except with several CPU devices.

    On CPU, XLA orders the collectives of a program through a shared object. In a program loaded from the cache each
    collective has its own object (jaxlib 0.10.2), so two may run at once, which aborted runs.
    """
    if jax.default_backend() == "cpu" and jax.device_count() > 1:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    folder = os.environ.get("MVCL_CACHE") or str(Path.home() / ".cache" / "mvcl")
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
