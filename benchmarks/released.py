"""Our objectives beside released PyTorch code, and beside bare products: time, memory, values.

    python -m benchmarks.released --released DIR --torch-python PATH [--only NAME ...] [--write docs/design/released.md]
    python -m benchmarks.released --values [--released DIR --torch-python PATH] [--write docs/reference/objectives.md]

DIR holds a checkout of each repository; one that is not there is left out, with a line that says so. PATH is a
Python that has torch, numpy and einops (docs/design/released.md has the commands); it runs
benchmarks/released_torch.py. Without it the columns of released code are empty. Both sides get the same CPU.

Times are CPU times of value and gradient in float32 on one thread, medians of rounds in which ours, the floor and
the released code take turns. The floor is what the formula needs, forward and backward, and nothing else: each inner
product once forward and twice backward (once for a symmetric matrix), sines and cosines (one of each projection: the
addition theorem gives those of its multiples), sorting. `--values` prints where released code and paper disagree, on
one small input, and the gradients at inputs where a root, a norm or a decomposition has no derivative.
"""

import hashlib
import inspect
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import harness
from benchmarks.harness import MIB, loss_of, milliseconds, number, program_of, table
from benchmarks.released_cases import CASES, DIFFERENCES, WIDE
from docs import objectives
from mvcl import losses

SIDES = ("ours", "floor", "released")


def small_input(shape: tuple[int, int, int]) -> np.ndarray:
    i = np.arange(math.prod(shape), dtype=np.float64)
    return np.sin(1 + i * i / 7).reshape(shape)


class Torch:
    """The released code, in a process of its own; None in place of an answer where there is none."""

    def __init__(self, python: str | None, released: Path | None, folder: Path, device: str = "cpu") -> None:
        """Starts the process, if there is a Python and a folder of checkouts."""
        self.folder, self.process = folder, None
        self.missing: dict[str, str] = {}
        self.version = ""
        if python and released:
            script = str(Path(__file__).with_name("released_torch.py"))
            command = [python, script, "--released", str(released), "--device", device]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.version = self._read()["torch"]

    def _read(self) -> dict[str, Any]:
        assert self.process is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the process of the released code ended; its message is above")
        return json.loads(line)

    def ask(self, name: str, z: np.ndarray, calls: int = 1) -> dict[str, Any] | None:
        """Value, mean seconds, MB and gradient of a loss; None where its code is not there."""
        if self.process is None or name in self.missing:
            return None
        request = json.dumps({"loss": name, "input": str(self._saved(z)), "calls": calls})
        print(request, file=self.process.stdin, flush=True)
        found = self._read()
        if "missing" in found:
            self.missing[name] = found["missing"]
            print(f"{name}: no released code ({found['missing']})", file=sys.stderr)
            return None
        return found | {"gradient": np.load(found["gradient"])}

    def _saved(self, z: np.ndarray) -> Path:
        z = np.ascontiguousarray(z, np.float32)
        file = self.folder / f"{hashlib.sha256(z.tobytes()).hexdigest()}-{z.shape}.npy"
        if not file.exists():
            np.save(file, z)
        return file


def measure(
    name: str, torch: Torch, repeats: int, *, times: int = 1, clock: Callable[[], float] = time.process_time
) -> dict[str, Any]:
    """Median ms of ours, the floor and the released code, their memory in MB, values and how gradients differ.

    Of so many times the case's n, by the clock; that of the released code is its own, of the CPU or the wall.
    """
    case = CASES[name]
    shape = (case.shape[0], times * case.shape[1], case.shape[2])
    z = harness.embeddings(shape)
    programs = {"ours": program_of(jax.value_and_grad(case.function()), jnp.asarray(z))}
    if case.floor:
        programs["floor"] = program_of(case.floor.run, jnp.asarray(z))
    if case.beside:
        programs["released"] = program_of(jax.value_and_grad(case.beside), jnp.asarray(z))
    seconds = {which: harness.repeated(program, clock) for which, (program, _) in programs.items()}
    if case.beside:
        found = dict(zip(("value", "gradient"), programs["released"][0]()))
        found["mb"] = programs["released"][1] * MIB / 1e6
    elif found := torch.ask(name, z):  # the first call allocates
        seconds["released"] = lambda calls: torch.ask(name, z, calls)["seconds"]
    taken = harness.turns(seconds, repeats)
    value, gradient = programs["ours"][0]()
    return {
        "name": name,
        "objective": losses.name(case.loss).split("(")[0],
        "loss": expression(case.loss),
        "shape": list(shape),
        **{f"{which}_ms": milliseconds(taken[which]) if which in taken else None for which in SIDES},
        "ours_mb": programs["ours"][1] * MIB / 1e6,
        "released_mb": found["mb"] if found else None,
        "value": float(value),
        "released_value": float(found["value"]) if found else None,
        "gradient_difference": harness.difference(gradient, found["gradient"]) if found else None,
    }


def expression(objective: Callable[..., Any]) -> str:
    """An objective as code: `all_pairs(nt_xent)`, `mv_infonce(negatives='all')`."""
    function, options = losses.unwrap(objective)
    made_by = losses.higher_order(function)
    arguments = [expression(options["pair"])] if made_by else []
    defaults = inspect.signature(made_by or function).parameters
    arguments += [
        f"{name}={value!r}"
        for name, value in options.items()
        if name not in ("pair", "critics", "normalize") and value != defaults[name].default
    ]
    return losses.name(objective).split("(")[0] + (f"({', '.join(arguments)})" if arguments else "")


def value_of(objective: str, options: dict[str, Any], z: np.ndarray) -> float:
    """Our value in float64."""
    with jax.enable_x64(True):
        loss = loss_of(partial(losses.objectives()[objective], **options))
        return float(jax.jit(loss)(jnp.asarray(z)))


def written(options: dict[str, Any]) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in options.items()) or "defaults"


def values(torch: Torch) -> list[list[str]]:
    """Each difference as cells: objective, what differs, our value by the paper, as released, and the released one."""
    rows = []
    for case in DIFFERENCES:
        z = small_input(case.shape)
        found = torch.ask(case.released, z)
        code = "no option"
        if case.code is not None:
            ours = value_of(case.objective, case.code, case.prepared(z))
            code = f"{ours:.6f} ({written(case.code)}{case.of})"
        paper = f"{value_of(case.objective, case.paper, z):.6f} ({written(case.paper)})"
        released = f"{found['value']:.6f}" if found else "-"
        rows.append([f"`{case.objective}`", case.what, paper, code, released])
    return rows


def edges() -> dict[str, tuple[str, np.ndarray]]:
    """Inputs at which a root, a norm or a decomposition has no derivative: loss, what is special, input."""
    z = small_input((3, 6, 4))
    coinciding = np.broadcast_to(z[:1], z.shape).copy()
    orthogonal = np.broadcast_to(np.eye(4)[:3, None], z.shape).copy()
    constant, zero = z[:2].copy(), z[:2].copy()
    constant[:, :, 1] = 0.5
    zero[:, :, 1] = 0
    same_rows = np.broadcast_to(z[:, :1], z.shape).copy()
    return {
        "gram": ("views coincide: volume 0", coinciding),
        "triangle": ("views coincide: area 0", coinciding),
        "pmrl": ("views are orthogonal: equal singular values", orthogonal),
        "mmcr": ("instances coincide: singular values 0", same_rows),
        "vicreg": ("a constant column", constant),
        "barlow_twins": ("a constant column", constant),
        "frossl": ("a column of zeros", zero),
        "emp_ssl": ("views coincide", coinciding),
        "lejepa": ("views coincide", coinciding),
        "visreg": ("a constant column", constant),
    }


def gradient_of(objective: str, z: np.ndarray) -> np.ndarray:
    """Our gradient in float32 with default options."""
    loss = loss_of(losses.objectives()[objective])
    return np.asarray(jax.jit(jax.grad(loss))(jnp.asarray(z, jnp.float32)))


def largest(gradient: np.ndarray | None) -> str:
    """The largest entry of a gradient, or how many entries are not finite."""
    if gradient is None:
        return "-"
    lost = int(np.sum(~np.isfinite(gradient)))
    return f"{lost} of {gradient.size} not finite" if lost else f"{np.abs(gradient).max():.3g}"


def comparisons(torch: Torch) -> dict[str, str]:
    """The tables of `--values`, by the name of their place in docs/reference/objectives.md."""
    at_edges = []
    for name, (what, z) in edges().items():
        found = torch.ask(name, z)
        both = gradient_of(name, z), found and found["gradient"]
        at_edges.append([f"`{name}`", what, *map(largest, both)])
    head = ["objective", "what the released code does otherwise", "ours, by the paper", "ours, as released"]
    return {
        "released values": table([*head, "released code"], values(torch)),
        "released edges": table(["objective", "input", "ours, largest entry", "released code"], at_edges),
    }


def bar(ratio: float | None, limit: float, at_most: bool) -> str:
    """A ratio beside its bar, if there is one."""
    if ratio is None or limit in (0, math.inf):
        return number(ratio)
    return f"{ratio:.1f} ({'at most' if at_most else 'at least'} {limit:g})"


def times_cells(row: dict[str, Any]) -> list[str]:
    case, ours, floor, released = CASES[row["name"]], row["ours_ms"], row["floor_ms"], row["released_ms"]
    return [
        f"`{row['loss']}`",
        str(tuple(row["shape"])),
        number(ours),
        number(floor),
        bar(floor and ours / floor, case.over_floor, at_most=True),
        number(released),
        bar(released and released / ours, case.over_released, at_most=False),
        number(row["ours_mb"], 0),
        number(row["released_mb"], 0),
    ]


def times_table(rows: Sequence[dict[str, Any]]) -> str:
    head = ["objective", "(k, n, d)", "ours, ms", "floor, ms", "ours / floor", "released, ms"]
    head += ["released / ours", "ours, MB", "released, MB"]
    return table(head, [times_cells(row) for row in rows])


def agreement_table(rows: Sequence[dict[str, Any]]) -> str:
    """What is timed beside what, and whether both compute the same."""
    cells = [
        [
            f"`{row['loss']}`",
            CASES[row["name"]].code,
            number(row["value"], 5),
            number(row["released_value"], 5),
            "-" if row["gradient_difference"] is None else f"{row['gradient_difference']:.0e}",
            CASES[row["name"]].differs,
        ]
        for row in rows
    ]
    head = ["objective", "released code", "our value", "its value", "gradients differ by", "why"]
    return table(head, cells)


def parts(results: dict[str, Any]) -> dict[str, str]:
    """The generated parts of docs/design/released.md, by their place."""
    rows, needs = results["rows"], dict[str, list[str]]()
    for row in rows:
        if row["floor_ms"] is not None:
            needs.setdefault(CASES[row["name"]].floor.needs, []).append(f"`{row['name']}`")
    loads = sorted(row["load"] for row in rows)
    load = " to ".join(f"{load:.1f}" for load in sorted({loads[0], loads[-1]}))
    versions = (
        f"jax {results['jax']}, torch {results['torch']}; load average when a run began: {load}. At (3, 1024, 128) "
        f"`symile(z)` takes {results['streamed_mb']:.0f} MB for its 1,024³ products."
    )
    floors = "\n".join(f"- {', '.join(names)}: {what}" for what, names in needs.items())
    tables = {"times": times_table(rows), "agreement": agreement_table(rows)}
    made = {"versions": versions, **tables, "floors": floors}
    return {place: f"{text}\n" for place, text in made.items()}


def write(file: Path, rows: list[dict[str, Any]], made_by: dict[str, Any]) -> None:
    """Writes the page and, beside it, its JSON, of which rows of other names are kept."""
    numbers = file.with_suffix(".json")
    old = json.loads(numbers.read_text(encoding="utf-8"))["rows"] if numbers.exists() else []
    found = {row["name"]: row for row in [*old, *rows]}
    results = made_by | {"rows": [found[name] for name in CASES if name in found]}
    numbers.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    file.write_text(objectives.written(file, parts(results)), encoding="utf-8")


def main() -> None:
    parser = harness.parser_of(__doc__)
    parser.add_argument("--released", type=Path, help="folder with a checkout of each repository")
    parser.add_argument("--torch-python", help="a Python that has torch, numpy and einops")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--values", action="store_true", help="only the table of values")
    parser.add_argument("--write", type=Path, help="Markdown file")
    options = parser.parse_args()
    if options.write and not (options.released and options.torch_python):
        parser.error("--write needs --released and --torch-python: a page has the numbers of both")
    # Before JAX starts its threads, which are as many as there are CPUs; the process of torch inherits it.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    jax.config.update("jax_platforms", "cpu")
    with tempfile.TemporaryDirectory() as folder:
        torch = Torch(options.torch_python, options.released, Path(folder))
        if options.values:
            tables = comparisons(torch)
            print("\n\n".join(tables.values()))
            if options.write:
                of_page = {place: f"{made}\n" for place, made in tables.items()}
                options.write.write_text(objectives.written(options.write, of_page), encoding="utf-8")
            return
        rows, load = [], os.getloadavg()[0]
        _, streamed = program_of(jax.value_and_grad(CASES["symile_all"].function()), jnp.zeros(WIDE))
        made_by = {"torch": torch.version, "jax": jax.__version__, "streamed_mb": streamed * MIB / 1e6}
        for name in options.only:
            rows.append(measure(name, torch, options.repeats) | {"load": load})
            print(times_table(rows[-1:]).splitlines()[-1], flush=True)
            if options.write:
                write(options.write, rows, made_by)


if __name__ == "__main__":
    main()
