"""The memory and the FLOPs of a step from its jaxpr: what is stored and alive at each operation, without compiling.

A model of XLA's buffers. Products, convolutions, reductions and loops store what they write. Other operations are
computed inside of those that read their results, unless a product reads them, or one far later, as the backward pass
does, or several read a choice of two arrays, such as a slope where its activation is positive: XLA then keeps the
result. What a recomputed block reads has passed a barrier, and no result is written in its place. The jaxpr is traced
once, for `ROWS` examples on each of `DEVICES` devices, primes that sizes of networks are not multiples of; so every
size is known for any number of examples and of devices.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from jax.extend.core import Literal


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
        last = {leaf: at for at, op in enumerate(steps) for leaf in _read(op.reads, leaves)}
        last |= dict.fromkeys(_read(self.outputs, leaves), len(steps))
        sizes = [scale(size) for size in self.sizes]
        dying = defaultdict(list)
        for leaf, at in last.items():
            if leaf not in free:
                dying[at].append(leaf)
        alive = most = 0.0
        for at, op in enumerate(steps):
            new = sum(sizes[v] for v in op.writes if leaves[v] == {v} and v in last and v not in free)
            gone = sum(sizes[leaf] for leaf in dying[at])
            inside = scale(op.inside) + max((body.peak(scale) for body in op.bodies), default=0.0)
            free_places = sum(sizes[leaf] for leaf in dying[at] if leaf not in self.barred)
            in_place = op.name in _CHEAP | _DEAR
            most = max(most, alive + inside + (max(new - free_places, 0.0) if in_place else new))
            alive += new - gone
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


def _read(values: list[int], leaves: dict[int, frozenset[int]]) -> Iterator[int]:
    for value in values:
        yield from leaves.get(value, ())


def _leaves(trace: Trace) -> dict[int, frozenset[int]]:
    """For each value the stored ones that it is computed from: of a stored value itself."""
    needed, readers, last = set(trace.outputs), defaultdict[int, int](int), dict[int, int]()
    for at, op in enumerate(trace.operations):
        last |= dict.fromkeys(op.reads, at)
        for value in op.reads:
            readers[value] += 1
        if op.name not in _CHEAP | _DEAR | _REDUCING:
            needed.update(op.reads)
    spread = {v for op in trace.operations if op.name in ("broadcast_in_dim", "iota") for v in op.writes}
    leaves = {value: frozenset([value]) for value in trace.inputs}
    for at, op in enumerate(trace.operations):
        below = frozenset(_read(op.reads, leaves))
        for value in op.writes:
            one = readers[value] <= 1
            whole = {v for v in op.reads if v >= 0 and trace.counts[v] >= trace.counts[value]} - spread
            again = op.name != "select_n" or len(whole) <= 1
            near = one or (again and (op.name in _MOVES or last.get(value, at) - at < _NEAR))
            fused = near if op.name in _CHEAP else one and op.name in _DEAR
            fused = fused and value not in needed and len(below) <= _MOST
            leaves[value] = below if fused else frozenset([value])
    return leaves
