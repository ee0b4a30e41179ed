"""What a training step holds on each of several devices, by `train.remat`: a model of XLA's buffers, from the jaxpr.

Nothing is compiled. Products, convolutions, reductions and loops store what they write. Other operations are
computed inside of those that read their results, unless a product reads them, or one far later, as the backward pass
does, or several read a choice of two arrays, such as a slope where its activation is positive: XLA then keeps the
result. What a recomputed block reads has passed a barrier, and no result is written in its place. The jaxpr is traced
once, for `ROWS` examples on each of `DEVICES` devices, primes that sizes of networks are not multiples of; so every
size is known for any number of examples and of devices.
"""

import dataclasses
import math
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, Primitive
from jax.sharding import AbstractMesh, AxisType

from mvcl import data, losses, methods, models
from mvcl.training import _config, _cost, _optimizers, _program, _sharding
from mvcl.training._serialise import replace_at


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CHEAP = _names(  # with two readers each computes it again
    "abs add add_any and bitcast_convert_type broadcast_in_dim ceil clamp concatenate convert_element_type copy copy_p "
    "div dynamic_slice dynamic_update_slice eq expand_dims floor ge gt integer_pow iota is_finite le lt max min mul ne "
    "neg not or pad population_count random_bits random_fold_in random_seed random_split random_unwrap random_wrap "
    "real reduce_precision rem reshape rev round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical "
    "sign slice split sqrt square squeeze stop_gradient sub threefry2x32 transpose xor"
)
_DEAR = _names("atan2 cbrt cos erf erf_inv erfc exp exp2 expm1 log log1p logistic pow sin tan tanh")
_REDUCING = _names("argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum")
_MOVES = _names("broadcast_in_dim convert_element_type copy expand_dims iota reshape slice squeeze transpose")
ROWS, DEVICES = 53, 59
_NEAR = 60  # operations within which two readers are of one pass
_MOST = 8  # stored arrays that one fused operation reads


@dataclasses.dataclass
class _Operation:
    """The places of the values that it reads and writes, and for loops their bodies and turns."""

    name: str
    reads: list[int]
    writes: list[int]
    flops: int = 0
    bodies: "tuple[Trace, ...]" = ()
    turns: int = 1
    inside: int = 0  # bytes while it runs


@dataclasses.dataclass(frozen=True)
class Scale:
    """Numbers of a trace, for other numbers of examples of a device, as a share of `ROWS`, and of devices."""

    rows: float = ROWS
    devices: float = DEVICES

    def __call__(self, count: int) -> float:
        scaled = float(count)
        for prime, actual in ((ROWS, self.rows), (DEVICES, self.devices)):
            while count and count % prime == 0:
                count, scaled = count // prime, scaled / prime * actual
        return scaled


class Trace:
    """Operations of a jaxpr in order, calls inlined, and the bytes of each value.

    The outputs count as memory, unless the inputs are `donated` for them.
    """

    def __init__(self, jaxpr: Any, donated: bool = False) -> None:
        self.sizes: list[int] = []
        self.counts: list[int] = []  # of numbers in each value
        self.barred: set[int] = set()
        self.operations: list[_Operation] = []
        given = (*jaxpr.constvars, *jaxpr.invars)
        self.inputs = [self.value(var) for var in given]
        self.outputs = self.inline(jaxpr, dict(zip(given, self.inputs)))
        self.leaves = _leaves(self)
        self.free = {-1, *self.inputs, *(self.outputs if donated else ())}

    def value(self, var: Any) -> int:
        shape, dtype = getattr(var.aval, "shape", ()), getattr(var.aval, "dtype", None)
        self.counts.append(math.prod(shape))
        self.sizes.append(self.counts[-1] * getattr(dtype, "itemsize", 8))
        return len(self.sizes) - 1

    def inline(self, jaxpr: Any, names: dict[Any, int]) -> list[int]:
        """Append the operations of a jaxpr whose inputs have these places; the places of its outputs."""

        def place(var: Any) -> int:
            return -1 if isinstance(var, Literal) else names[var]

        for eqn in jaxpr.eqns:
            reads, name = [place(var) for var in eqn.invars], eqn.primitive.name
            called = next((eqn.params[n] for n in ("jaxpr", "call_jaxpr") if n in eqn.params), None)
            if called is None or name in ("scan", "while", "cond"):
                writes = [self.value(var) for var in eqn.outvars]
                self.operations.append(_Operation(name, reads, writes, *_own(eqn)))
                names.update(zip(eqn.outvars, writes))
                continue
            if eqn.params.get("differentiated"):  # recomputed behind a barrier, before which all is stored
                self.operations.append(_Operation("barrier", reads, []))
                self.barred.update(reads)
            inner = getattr(called, "jaxpr", called)
            given = {var: self.value(var) for var in inner.constvars} | dict(zip(inner.invars, reads))
            names.update(zip(eqn.outvars, self.inline(inner, given)))
        return [place(var) for var in jaxpr.outvars]

    def flops(self, scale: Scale) -> float:
        """Of products and convolutions; of a `while` loop one turn is counted."""
        return sum(
            scale(op.flops) + scale(op.turns) * max((body.flops(scale) for body in op.bodies), default=0.0)
            for op in self.operations
        )

    def peak(self, scale: Scale) -> float:
        """Most bytes that are alive beside the inputs."""
        leaves, free = self.leaves, self.free
        steps = [op for op in self.operations if not op.writes or any(leaves[v] == {v} for v in op.writes)]
        reads = [*(op.reads for op in steps), self.outputs]
        last = {leaf: at for at, values in enumerate(reads) for v in values for leaf in leaves.get(v, ())}
        sizes = [scale(size) for size in self.sizes]
        dying = defaultdict(list)
        for leaf, at in last.items():
            if leaf not in free:
                dying[at].append(leaf)
        alive = most = 0.0
        for at, op in enumerate(steps):
            new = sum(sizes[v] for v in op.writes if leaves[v] == {v} and v in last and v not in free)
            inside = scale(op.inside) + max((body.peak(scale) for body in op.bodies), default=0.0)
            free_places = sum(sizes[leaf] for leaf in dying[at] if leaf not in self.barred)
            in_place = op.name in _CHEAP | _DEAR
            most = max(most, alive + inside + (max(new - free_places, 0.0) if in_place else new))
            alive += new - sum(sizes[leaf] for leaf in dying[at])
        return most


def _own(eqn: Any) -> tuple[int, tuple[Trace, ...], int, int]:
    """FLOPs of an operation, bodies of a loop and their turns, and its own bytes."""
    name, params = eqn.primitive.name, eqn.params
    if name in ("scan", "while", "cond"):
        bodies = params.get("branches") or (params["jaxpr" if name == "scan" else "body_jaxpr"],)
        return 0, tuple(Trace(getattr(body, "jaxpr", body)) for body in bodies), params.get("length", 1), 0
    count = 2 * math.prod(getattr(eqn.outvars[0].aval, "shape", ())) if eqn.outvars else 0
    if name == "dot_general":
        left, axes = eqn.invars[0].aval.shape, params["dimension_numbers"][0][0]
        return count * math.prod(left[axis] for axis in axes), (), 1, 0
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        outputs = kernel[params["dimension_numbers"].rhs_spec[0]]
        return count * math.prod(kernel) // outputs // math.prod(params["lhs_dilation"]), (), 1, 0
    if name == "fused_attention":  # forward two products of every pair of tokens, backward five
        return count * eqn.invars[0].aval.shape[1] * (2 if len(eqn.outvars) == 2 else 5), (), 1, 0
    if name == "select_and_scatter_add":  # of max-pooling: XLA keeps six arrays of its input and indices
        source, operand = (math.prod(var.aval.shape) for var in eqn.invars)
        return 0, (), 1, 4 * (6 * operand + 4 * source)
    return 0, (), 1, 0


def _leaves(trace: Trace) -> dict[int, frozenset[int]]:
    """For each value the stored ones that it is computed from: of a stored value itself."""
    readers = Counter(value for op in trace.operations for value in op.reads)
    last = {value: at for at, op in enumerate(trace.operations) for value in op.reads}
    storing = (op.reads for op in trace.operations if op.name not in _CHEAP | _DEAR | _REDUCING)
    needed = set(trace.outputs).union(*storing)
    spread = {v for op in trace.operations if op.name in ("broadcast_in_dim", "iota") for v in op.writes}
    leaves = {value: frozenset([value]) for value in trace.inputs}
    for at, op in enumerate(trace.operations):
        below = frozenset(leaf for value in op.reads for leaf in leaves.get(value, ()))
        for value in op.writes:
            one = readers[value] <= 1
            whole = {v for v in op.reads if v >= 0 and trace.counts[v] >= trace.counts[value]} - spread
            again = op.name != "select_n" or len(whole) <= 1
            near = one or (again and (op.name in _MOVES or last.get(value, at) - at < _NEAR))
            fused = near if op.name in _CHEAP else one and op.name in _DEAR
            fused = fused and value not in needed and len(below) <= _MOST
            leaves[value] = below if fused else frozenset([value])
    return leaves


USABLE = 0.9  # of a device's memory for a step; the rest is for the runtime and the work space of kernels
CAPACITIES = {"80 GB GPUs": 80e9, "32 GB TPU cores": 32e9, "16 GB TPU cores": 16e9}
_BATCHES = 3  # on a device: one in use, two prefetched


class Memory(NamedTuple):
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

    def __init__(self, config: _config.Config, outline: data.Outline, platform: str = "gpu") -> None:
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
        self.trace: Trace | None = None
        try:
            self.trace = self._traced(ROWS * self.unit, DEVICES)
        except ValueError as error:  # the objective is not for so many examples: it is traced for each number
            if isinstance(error, models.NoBlocks):
                raise

    def _traced(self, rows: int, devices: int) -> Trace:
        local = replace_at(self.config, ("views", "strategy"), "growing")
        local = replace_at(local, ("train", "batch_size"), rows)
        cut = _sharding.microbatches(local.train.microbatch, rows, _program.make_mesh(_config.Mesh(data=1)))
        objective = _objective(self.config, self.learner, devices)
        step = _program.step_of(local, 1000, self.learner, self.rule, objective, cut)
        counts = {"step": jax.ShapeDtypeStruct((), jnp.int32), "seed": jax.ShapeDtypeStruct((), jnp.uint32)}
        batch = _cost.batch_of(local, self.outline, rows)
        self.example = _bytes(batch) / rows
        with models.xla_convolutions(), models.attention_by(_attention):
            jaxpr = jax.make_jaxpr(step)(self.kept | counts | {"opt": self.moments}, batch).jaxpr
        return Trace(jaxpr, donated=True)

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
            scale = Scale(rows / self.unit, devices) if self.trace else Scale()
            trace = self.trace or self._traced(rows, devices)
            self.found[rows, devices] = trace.peak(scale), trace.flops(scale)
        temporaries, flops = self.found[rows, devices]
        return Memory(kept, moments, _BATCHES * rows * self.example, temporaries + gathered, flops)


def models_of(config: _config.Config, outline: data.Outline, platform: str = "gpu") -> dict[str, Model]:
    """The model of each policy that the encoder has."""
    found: dict[str, Model] = {}
    for policy in get_args(models.Remat):
        try:
            found[policy] = Model(replace_at(config, ("train", "remat"), policy), outline, platform)
        except models.NoBlocks:
            break
    return found


def fewest(model: Model, capacity: float) -> int | None:
    """The smallest power of 2 of devices of so many bytes on which a step runs; None if there is none."""
    sizes = (1 << power for power in range(13))  # to 4096
    with suppress(ValueError):  # the batch divides over no more devices
        return next((devices for devices in sizes if model.on(devices).total <= USABLE * capacity), None)
    return None


def memory_table(config: _config.Config, devices: int) -> str:
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
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is None or (needs := Model(config, outline, device.platform).on(mesh.size).total) <= limit:
        return ""
    what = f"a step needs about {needs / 1e9:.1f} GB of each device, which has {limit / 1e9:.1f}"
    for policy, model in models_of(config, outline, device.platform).items():
        if (less := model.on(mesh.size).total) <= limit:
            return f"{what}; --train.remat {policy} needs {less / 1e9:.1f}"
    return f"{what}, also with --train.remat full; use more devices or a smaller --train.batch-size"


def _objective(config: _config.Config, learner: methods.Learner, devices: int) -> methods.OfViews:
    """The objective of the rows of so many devices, as a function of those of one."""
    takes, grouped = losses.takes(config.objective), config.train.group is not None
    over = 1 if grouped or not takes.axis_name else devices
    mesh = AbstractMesh((over,), ("data",), axis_types=(AxisType.Auto,))
    of_views = _sharding.objective(config, learner, mesh)

    def repeated(x: jax.Array, axis: int | None) -> jax.Array:
        return x if axis is None else jnp.concatenate([x] * devices, axis)

    def of_all(z: jax.Array, /, **extra: Any) -> tuple[jax.Array, methods.Measures]:
        extra = {name: repeated(x, takes.axis_of_instances(name, x)) for name, x in extra.items()}
        return of_views(repeated(z, z.ndim - 2), **extra)

    return of_views if grouped else of_all


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
