"""Communication and FLOPs of a program: of a traced one, and of optimised HLO."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_NO_TRAFFIC = ("pvary", "pcast", "axis_index")
_KINDS = {
    "all_gather": "all-gather",
    "all_gather_invariant": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "psum": "all-reduce",
    "psum_invariant": "all-reduce",
    "pmax": "all-reduce",
    "pmin": "all-reduce",
    "ppermute": "collective-permute",
    "all_to_all": "all-to-all",
}


@dataclass
class Count:
    """Of one device: FLOPs of matrix products, and bytes of collectives by kind, as (whole array, times)."""

    flops: float = 0.0
    traffic: dict[str, float] = field(default_factory=dict)
    in_loops: float = 0.0  # bytes of one turn of loops whose number of turns the data decides
    across: float = 0.0  # of the bytes, those from other slices

    @property
    def bytes(self) -> float:
        """Bytes received, once through."""
        return sum(self.traffic.values())

    def add(self, other: "Count", times: float = 1) -> None:
        """Add another's counts, so many times."""
        self.flops += times * other.flops
        self.in_loops += times * other.in_loops
        self.across += times * other.across
        for kind, number in other.traffic.items():
            self.traffic[kind] = self.traffic.get(kind, 0) + times * number


def received(kind: str, whole: float, devices: int) -> float:
    """Bytes that reach one device in a ring, `whole` being those of the array before scatter or after gather."""
    share = (devices - 1) / devices
    return {"all-reduce": 2 * share, "collective-permute": 1.0}.get(kind, share) * whole


def crossing(kind: str, whole: float, groups: np.ndarray, slices: np.ndarray) -> float:
    """Of the bytes that reach one device, those that come from another slice, for collectives of two levels.

    A collective first goes round inside each slice, and the device's share of it then round the slices; together these
    are the bytes of one ring. `groups` are (groups, members) devices, or the (pairs, 2) of a permutation, and `slices`
    is the slice of each device.
    """
    if kind == "collective-permute":
        return float(np.mean(slices[groups[:, 0]] != slices[groups[:, 1]])) * whole
    members = groups.shape[1]
    met = {len(set(slices[group])) for group in groups}
    assert len(met) == 1, "groups meet different numbers of slices"
    (count,) = met
    if kind == "all-to-all":
        return (count - 1) / count * whole
    return {"all-reduce": 2.0}.get(kind, 1.0) * (count - 1) / members * whole


def traced(program: Any, devices: int) -> Count:
    """Count a jaxpr. Arrays within a shard_map are one device's; a loop counts as often as it turns."""
    total = Count()
    for equation in program.eqns:
        name, parameters = equation.primitive.name, equation.params
        axes = parameters.get("axis_name", parameters.get("axes", ()))
        named = [a for a in (axes if isinstance(axes, tuple) else (axes,)) if isinstance(a, str)]
        if name == "dot_general":
            (contracted, _), _ = parameters["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total.flops += (
                2.0 * np.prod(equation.outvars[0].aval.shape) * np.prod([left[a] for a in contracted])
            )
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            outputs = parameters["dimension_numbers"].rhs_spec[0]
            # each output element is a product with one filter; padding counts as if it were there
            total.flops += 2.0 * np.prod(equation.outvars[0].aval.shape) * np.prod(kernel) / kernel[outputs]
        elif named and name not in _NO_TRAFFIC:
            if name not in _KINDS:
                raise NotImplementedError(f"{name} over {named} is not counted")
            kind = _KINDS[name]
            ends = equation.outvars if kind == "all-gather" else equation.invars
            whole = sum(v.aval.size * v.aval.dtype.itemsize for v in ends)
            total.traffic[kind] = total.traffic.get(kind, 0) + received(kind, whole, devices)
        inner = [traced(p, devices) for p in _programs(parameters)]
        if name == "cond":
            inner = [max(inner, key=lambda count: (count.bytes, count.flops))]
        for count in inner:
            if name == "while":
                total.in_loops += count.bytes
                total.flops += count.flops
            else:
                total.add(count, parameters["length"] if name == "scan" else 1)
    return total


def _programs(parameters: dict[str, Any]) -> Iterator[Any]:
    for value in parameters.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            item = getattr(item, "jaxpr", item)
            if hasattr(item, "eqns"):
                yield item


_OPERATION = re.compile(
    r"= (?P<type>.*?) (?P<kind>all-gather|all-reduce|reduce-scatter|collective-permute|all-to-all)(-start)?\("
)
_ARRAY = re.compile(r"\b(f64|f32|bf16|f16|s64|u64|s32|u32|s16|u16|s8|u8|pred)\[([\d,]*)\]")
_SIZES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
_EXPLICIT = re.compile(r"(?:replica_groups|source_target_pairs)=\{(\{[\d,{} ]*\})?\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}"
)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def replica_groups(line: str, devices: int) -> np.ndarray:
    """(groups, members) of a collective in HLO's text, or the (pairs, 2) of a permutation."""
    everyone = np.arange(devices)
    if found := _MESH.search(line):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", found[1])}
        if found[2]:
            everyone = everyone.reshape(_numbers(found[2]))
            everyone = everyone.transpose(_numbers(found[3])) if found[3] else everyone
        over = re.findall(r"'(\w+)'", found[4])
        if ":" in found[4] or not set(over) <= set(sizes):
            raise NotImplementedError(f"groups over {found[4]} are not counted")
        places = [list(sizes).index(name) for name in over]
        mesh = np.moveaxis(everyone.reshape(list(sizes.values())), places, range(-len(places), 0))
        return mesh.reshape(-1, int(np.prod([sizes[name] for name in over])))
    if found := _IOTA.search(line):
        everyone = everyone.reshape(_numbers(found[2]))
        everyone = everyone.transpose(_numbers(found[3])) if found[3] else everyone
        return everyone.reshape(_numbers(found[1]))
    found = _EXPLICIT.search(line)
    if not found:
        raise NotImplementedError(f"the groups of {line.strip()[:200]} are not counted")
    if not found[1]:
        return everyone[None]
    return np.asarray([_numbers(group) for group in re.findall(r"\{([\d,]+)\}", found[1])])


def compiled(text: str, devices: int, slices: int = 1) -> Count:
    """Count the collectives of an optimised HLO module, following calls, and loops whose turns XLA knows.

    Devices that follow one another are `slices` slices.
    """
    slice_of = np.arange(devices) * slices // devices
    bodies: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.-]+) \(.*\{$", line):
            name = head[2]
            bodies[name] = []
            entry = name if head[1] else entry
        elif name:
            bodies[name].append(line)

    def count(name: str) -> Count:
        total = Count()
        for line in bodies[name]:
            if found := _OPERATION.search(line):
                sizes = [
                    _SIZES.get(kind, 1) * np.prod([int(s) for s in shape.split(",") if s])
                    for kind, shape in _ARRAY.findall(found["type"])
                ]
                kind, groups = found["kind"], replica_groups(line, devices)
                members = groups.shape[1]
                whole = float(sum(sizes)) * (members if kind == "reduce-scatter" else 1)
                total.traffic[kind] = total.traffic.get(kind, 0) + received(kind, whole, members)
                total.across += crossing(kind, whole, groups, slice_of)
            if " while(" in line:
                inner = count(re.search(r"body=%?([\w.-]+)", line)[1])  # type: ignore[index]
                turns = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
                if turns:
                    total.add(inner, int(turns[1]))
                else:
                    total.in_loops += inner.bytes + inner.in_loops
            elif " conditional(" in line:
                names = re.search(r"branch_computations=\{([^}]*)\}", line) or re.search(
                    r"true_computation=(.*?), false_computation=([\w.%-]+)", line
                )
                assert names is not None
                branches = [count(n.strip().lstrip("%")) for n in ",".join(names.groups()).split(",")]
                total.add(max(branches, key=lambda c: c.bytes))
            elif called := re.search(r" (?:call|async-start)\(.*(?:to_apply|calls)=%?([\w.-]+)", line):
                total.add(count(called[1]))
        return total

    return count(entry)
