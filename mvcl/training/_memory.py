"""What a training step holds on each of several devices, by `train.remat`: a model, that compiles nothing."""

import dataclasses
import math
from contextlib import suppress
from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from mvcl import data, losses, methods, models
from mvcl.training import _config, _cost, _liveness, _optimizers, _program, _sharding
from mvcl.training._config import Config
from mvcl.training._serialise import replace_at

POLICIES: tuple[models.Remat, ...] = get_args(models.Remat)
USABLE = 0.9
"""Share of a device's memory that a step may take; the rest is for the runtime and the work space of kernels."""
CAPACITIES = {"80 GB GPUs": 80e9, "32 GB TPU cores": 32e9, "16 GB TPU cores": 16e9}
MOST_DEVICES = 4096
_BATCHES = 3  # on a device: one in use, two prefetched


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device, and the FLOPs of its products and convolutions."""

    parameters: float  # with those of a momentum encoder, a moving average, statistics and a queue
    optimizer: float
    batch: float
    temporaries: float
    flops: float

    @property
    def total(self) -> float:
        return self.parameters + self.optimizer + self.batch + self.temporaries


class Model:
    """The memory of a config, as data fix it, on any number of devices of a platform, which decides the precision.

    Traced once is the step of one device's rows, with the objective of all rows. Attention in bfloat16 stores no
    scores, as the kernel of a GPU.
    """

    def __init__(self, config: Config, outline: data.Outline, platform: str = "gpu") -> None:
        self.config, self.outline, group = config, outline, config.train.group
        self.unit: int = group or config.train.microbatch or int(getattr(config.encoder, "batch_groups", 1))
        self.learner = _program.learner_of(config, outline, platform)
        params, statistics = jax.eval_shape(self.learner.init, jax.random.key(0))
        parts = tuple(params) if self.learner.restarts_parts else ()
        lengths = {"examples": config.examples, "steps": 1000, "steps_per_epoch": 10}
        self.rule, _ = _optimizers.build(config.optimizer, **lengths, parts=parts)
        self.moments = jax.eval_shape(self.rule.init, params)
        self.kept = {"params": params, "statistics": statistics}
        self.kept |= {"ema": params} if config.train.ema else {}
        self.found: dict[Any, tuple[float, float]] = {}
        self.trace: _liveness.Trace | None = None
        try:
            self.trace = self._traced(_liveness.ROWS * self.unit, _liveness.DEVICES)
        except models.NoBlocks:
            raise
        except ValueError:  # the objective is not for so many examples: it is traced for each number
            pass

    def _traced(self, rows: int, devices: int) -> _liveness.Trace:
        config, microbatch = self.config, self.config.train.microbatch
        views = dataclasses.replace(config.views, strategy="growing")
        train = dataclasses.replace(config.train, batch_size=rows)
        local = dataclasses.replace(config, views=views, train=train)
        draw = partial(_program.drawn, () if self.outline.spec.given else config.policies)
        one, cut = _program.make_mesh(_config.Mesh(data=1)), None
        if microbatch is not None and microbatch < rows:
            cut = _sharding.microbatches(microbatch, rows, one)
        objective = _objective(config, self.learner, devices)
        step = _program.step_of(local, 1000, self.learner, self.rule, objective, draw, cut)
        counts = {"step": jax.ShapeDtypeStruct((), jnp.int32), "seed": jax.ShapeDtypeStruct((), jnp.uint32)}
        batch = _cost.batch_of(local, self.outline, rows)
        self.example = _bytes(batch) / rows
        with models.xla_convolutions(), models.attention_by(_attention):
            jaxpr = jax.make_jaxpr(step)(self.kept | counts | {"opt": self.moments}, batch).jaxpr
        return _liveness.Trace(jaxpr, donated=True)

    def on(self, devices: int) -> Memory:
        """On so many devices; `ValueError` if the batch does not divide over them."""
        n, group = self.config.examples, self.config.train.group
        rows = -(-n // devices)
        if devices > n or (group is not None and (n % devices or rows % group)):
            of = "" if group is None else f" in groups of {group}"
            raise ValueError(f"a batch of {n} examples{of} does not divide over {devices} devices")
        fsdp = min(self.config.mesh.fsdp, devices)
        kept, moments = _bytes(self.kept, fsdp), _bytes(self.moments, fsdp)
        gathered = _bytes(self.kept["params"]) - _bytes(self.kept["params"], fsdp)  # at most, in the step
        if (rows, devices) not in self.found:
            scale = _liveness.Scale(rows / self.unit, devices) if self.trace else _liveness.Scale()
            trace = self.trace or self._traced(rows, devices)
            self.found[rows, devices] = trace.peak(scale), trace.flops(scale)
        temporaries, flops = self.found[rows, devices]
        batch = _BATCHES * rows * self.example
        return Memory(kept, moments, batch, temporaries + gathered, flops)


def models_of(config: Config, outline: data.Outline, platform: str = "gpu") -> dict[str, Model]:
    """The model of each policy that the encoder has."""
    found: dict[str, Model] = {}
    for policy in POLICIES:
        try:
            found[policy] = Model(replace_at(config, ("train", "remat"), policy), outline, platform)
        except models.NoBlocks:
            break
    return found


def fewest(model: Model, capacity: float) -> int | None:
    """The smallest power of 2 of devices of so many bytes on which a step runs; None if there is none."""
    sizes = (1 << power for power in range(MOST_DEVICES.bit_length()))
    with suppress(ValueError):  # the batch divides over no more devices
        return next((devices for devices in sizes if model.on(devices).total <= USABLE * capacity), None)
    return None


def memory_table(config: Config, devices: int) -> str:
    """A table of the policies on so many devices, in GB of each, and the fewest devices of some sizes."""
    config, outline, assumed, _ = _cost.outlined(config)
    rows = [["remat", "FLOPs", "parameters", "optimiser", "batch", "temporaries", "in all", *CAPACITIES]]
    flops = 0.0
    for policy, model in models_of(config, outline).items():
        m = model.on(devices)
        flops = flops or m.flops
        sizes = (m.parameters, m.optimizer, m.batch, m.temporaries, m.total)
        found = [fewest(model, capacity) for capacity in CAPACITIES.values()]
        rows.append([policy, f"{m.flops / flops:.2f}", *(f"{size / 1e9:.3g}" for size in sizes)])
        rows[-1] += ["none" if number is None else str(number) for number in found]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]
    head = f"GB of each of {devices} devices, {-(-config.examples // devices)} examples each, in the precision of a GPU"
    least = f"a power of 2, of which a step takes at most {USABLE:.0%}"
    tail = f"The last columns are the fewest devices, {least}."
    return "\n".join([head, *lines, tail, *([f"  {assumed}"] if assumed else [])])


def warning(run: Any) -> str:
    """What a run that does not fit its devices should change; empty if it fits, or their memory is unknown."""
    config, outline, mesh = run.config, run.outline, run.program.mesh
    device = mesh.devices.flat[0]
    limit = (device.memory_stats() or {}).get("bytes_limit") if device.platform != "cpu" else None
    if limit is None or (needs := Model(config, outline, device.platform).on(mesh.size).total) <= limit:
        return ""
    what = f"a step needs about {needs / 1e9:.1f} GB of each device, which has {limit / 1e9:.1f}"
    for policy, model in models_of(config, outline, device.platform).items():
        if (less := model.on(mesh.size).total) <= limit:
            return f"{what}; --train.remat {policy} needs {less / 1e9:.1f}"
    return f"{what}, also with --train.remat full; use more devices or a smaller --train.batch-size"


def _objective(config: Config, learner: methods.Learner, devices: int) -> methods.OfViews:
    """The objective of the rows of so many devices, as a function of those of one."""
    takes = losses.takes(config.objective)
    of_views = partial(
        losses.of_views(config.objective, config.views.global_views), **learner.objective_options
    )
    if config.train.group is not None:
        return _sharding.in_groups(of_views, takes, config.train.group)
    mesh = AbstractMesh((devices,), ("data",), axis_types=(AxisType.Auto,))

    def objective(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
        places = {name: takes.axis_of_instances(name, x) for name, x in extra.items()}
        extra = {name: _repeated(x, places[name], devices) for name, x in extra.items()}
        z = _repeated(z, z.ndim - 2, devices)
        if not takes.axis_name:
            return of_views(z, **extra)

        def local(z: jax.Array, extra: dict[str, jax.Array]) -> tuple[jax.Array, methods.Measures]:
            return of_views(z, axis_name="data", **extra)

        along = partial(_sharding.along, devices="data")
        specs = along(z.ndim - 2), {name: along(axis) for name, axis in places.items()}
        return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())(z, extra)

    return objective


def _repeated(x: jax.Array, axis: int | None, devices: int) -> jax.Array:
    return x if axis is None else jnp.concatenate([x] * devices, axis)


def _bytes(tree: Any, fsdp: int = 1) -> float:
    """Bytes of arrays, those that `placed` splits divided by their devices."""
    mesh = AbstractMesh((1, fsdp), ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)
    shapes = [_program.placed(x, mesh) for x in jax.tree.leaves(tree)]
    return float(sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in shapes))


fused_attention = Primitive("fused_attention")
fused_attention.multiple_results = True


@fused_attention.def_abstract_eval
def _shapes(q: Any, *others: Any) -> list[Any]:
    """Values and the logarithm of each sum of weights; or the gradients of queries, keys and values."""
    return [q] * 3 if len(others) > 2 else [q, q.update(shape=q.shape[:3], dtype=np.dtype("float32"))]


@jax.custom_vjp
def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return fused_attention.bind(q, k, v)[0]


def _forward(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, Any]:
    out, sums = fused_attention.bind(q, k, v)
    return out, (q, k, v, out, sums)


_attention.defvjp(_forward, lambda kept, slope: tuple(fused_attention.bind(*kept, slope)))
