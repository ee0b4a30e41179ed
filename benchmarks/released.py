"""Our objectives beside the PyTorch code that their papers released, and beside bare products: time, memory, values.

    python -m benchmarks.released --released DIR --torch-python PATH [--only NAME ...] [--write docs/design/released.md]
    python -m benchmarks.released --values [--released DIR --torch-python PATH] [--write docs/reference/objectives.md]

DIR holds a checkout of each repository; one that is not there is left out, with a line that says so. PATH is a
Python that has torch, numpy and einops (docs/design/released.md has the commands); it runs
benchmarks/released_torch.py. Without it the columns of released code are empty. Both sides get the same CPUs and as
many threads.

Times are those of value and gradient in float32, medians of rounds in which ours, the floor and the released code
take turns. The floor is what the formula cannot do without, forward and backward, and nothing else: each inner
product once forward and twice backward (once for a symmetric matrix), the sines and cosines, the sorting. `--values`
prints where released code and paper disagree, on one small input; what several processes make of the gradients of
released code; and the gradients at inputs where a root, a norm or a decomposition has no derivative.
"""

import argparse
import functools
import hashlib
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import losses

Array = jax.Array
Floor = Callable[[Array], Any]
SLICES = {"lejepa": 1024, "visreg": 4096}
KNOTS = 16  # that of 0 has no sine


def inner_products(x: Array, y: Array) -> tuple[Array, Array]:
    """All inner products of rows, and the products of their gradient."""
    g = x @ y.T
    return g @ y, g.T @ x


def with_anchor(z: Array) -> list[Any]:
    """The anchor's inner products with each other view."""
    return [inner_products(z[0], other) for other in z[1:]]


def triples(z: Array) -> tuple[Array, Array]:
    """All sums over d of products of three views, a row of the second at a time."""
    x, y, w = z

    def of_row(total: Array, row: Array) -> tuple[Array, Array]:
        xy = x * row[None]
        g = xy @ w.T
        return total + g.T @ xy, g @ w

    return jax.lax.scan(of_row, jnp.zeros_like(w), y)


def second_moments(z: Array) -> list[Array]:
    """The d x d matrix of each view, and the product of its gradient."""
    return [view @ (view.T @ view) for view in z]


def slices(z: Array, name: str) -> tuple[Array, Array]:
    """Projections on directions, and the product of their gradient."""
    a = jax.random.normal(jax.random.key(0), (z.shape[-1], SLICES[name]))
    p = z @ a
    return p, p @ a.T


def sines(z: Array) -> tuple[Any, Array]:
    p, gradient = slices(z, "lejepa")
    waves = [wave(t * p).sum(1) for t in np.linspace(0, 3, KNOTS + 1)[1:] for wave in (jnp.sin, jnp.cos)]
    return waves, gradient


def sorts(z: Array) -> tuple[Array, Array]:
    p, gradient = slices(z, "visreg")
    return jnp.sort(p, axis=1), gradient


class Case(NamedTuple):
    shape: tuple[int, int, int]
    loss: Callable[[Array], Array]
    floor: Floor
    needs: str  # what the floor consists of
    over_floor: float = math.inf  # bars
    over_released: float = 0.0


WIDE = (3, 1024, 128)
CASES = {
    "symile_all": Case(
        (3, 256, 128), lambda z: losses.symile(z), triples, "n³ products, forward and twice backward", 2.0
    ),
    "symile_shuffled": Case(
        WIDE,
        lambda z: losses.symile(z, negatives="shuffled", key=jax.random.key(0)),
        lambda z: [inner_products(view, view) for view in z],
        "3 n² products, forward and twice backward",
    ),
    "gram": Case(
        WIDE, lambda z: losses.gram(z), with_anchor, "2 n² products, forward and twice backward", 3, 5
    ),
    "triangle": Case(
        WIDE, lambda z: losses.triangle(z), with_anchor, "2 n² products, forward and twice backward", 3, 5
    ),
    "pmrl": Case(
        WIDE,
        lambda z: losses.pmrl(z),
        lambda z: inner_products(z[0], z[0]),
        "n² products, forward and twice backward",
    ),
    "vicreg": Case(
        (2, 1024, 128),
        lambda z: losses.vicreg(z[0], z[1]),
        second_moments,
        "2 d² products, forward and backward",
    ),
    "barlow_twins": Case(
        (2, 1024, 128),
        lambda z: losses.barlow_twins(z[0], z[1]),
        lambda z: inner_products(z[0].T, z[1].T),
        "d² products, forward and twice backward",
    ),
    "mmcr": Case(
        (4, 1024, 128),
        lambda z: losses.mmcr(z),
        lambda z: second_moments(z.mean(0, keepdims=True)),
        "d² products, forward and backward",
    ),
    "frossl": Case(
        (4, 1024, 128), lambda z: losses.frossl(z), second_moments, "4 d² products, forward and backward"
    ),
    "emp_ssl": Case(
        (4, 1024, 128), lambda z: losses.emp_ssl(z), second_moments, "4 d² products, forward and backward"
    ),
    "lejepa": Case(
        (4, 1024, 128),
        lambda z: losses.lejepa(z, key=jax.random.key(0)),
        sines,
        "projections, forward and backward; 16 sines and cosines of each",
        1.5,
    ),
    "visreg": Case(
        (2, 1024, 128),
        lambda z: losses.visreg(z, key=jax.random.key(0)),
        sorts,
        "projections, forward and backward, and sorted",
    ),
}


class Difference(NamedTuple):
    """A place where released code disagrees with its paper or with this library's defaults, and what equals what.

    Options of ours for the numbers of the paper (or of the definition that docs/reference/objectives.md gives, where
    the paper leaves it open) and of the released code; None where no option gives them.
    """

    objective: str
    released: str  # the name of the code, in released_torch
    what: str
    paper: dict[str, Any]
    code: dict[str, Any] | None
    shape: tuple[int, int, int] = (3, 6, 4)
    prepared: Callable[[np.ndarray], np.ndarray] = lambda z: z  # what `code` is given, in words `of`
    of: str = ""


PAIR, LINE = (2, 6, 4), (2, 24, 1)  # on a line all directions are the same, so that the draw does not matter
DIFFERENCES = [
    Difference("symile", "symile_all", "none", {}, {}),
    Difference(
        "gram",
        "gram",
        "labels smoothed by 0.1; root of the determinant's absolute value, in place of max(det, 0) + eps",
        {},
        {"label_smoothing": 0.1, "eps": 1e-16},
    ),
    Difference(
        "triangle",
        "triangle",
        "no root: twice the squared area; labels smoothed by 0.1",
        {},
        {"squared": True, "label_smoothing": 0.1},
    ),
    Difference("pmrl", "pmrl", "the sign of a singular vector is what the SVD returns", {}, None),
    Difference(
        "vicreg",
        "vicreg",
        "the squared distance is a mean over d, and the variance term is halved",
        {"invariance": 100.0, "variance": 50.0},
        {},
        PAIR,
    ),
    Difference("barlow_twins", "barlow_twins", "redundancy 0.0051", {}, {"redundancy": 0.0051}, PAIR),
    Difference("mmcr", "mmcr", "none", {}, {}),
    Difference("frossl", "frossl", "none", {}, {}),
    Difference(
        "frossl",
        "frossl_two_views",
        "the function for two views, of the first version, centres the columns",
        {},
        {},
        PAIR,
        lambda z: z - z.mean(1, keepdims=True),
        ", of centred columns",
    ),
    Difference("emp_ssl", "emp_ssl", "eps = 0.2, which the paper squares", {"eps": 0.04}, {}),
    Difference(
        "emp_ssl",
        "emp_ssl_port",
        "lightly's port adds the coding rate, and so minimises it",
        {"eps": 0.04},
        None,
    ),
    Difference(
        "lejepa",
        "lejepa",
        "17 knots on [0, 3]; the paper has 17 on [-5, 5], 9 of which are not negative",
        {"knots": 9, "t_max": 5.0},
        {},
        LINE,
    ),
    Difference(
        "visreg", "visreg", "1e-6 is added to the deviations, in the scale term too", {}, {"eps": 1e-6}, LINE
    ),
]


# released codes that exchange something between devices, with a number of views
SPLIT = {"gram": 3, "triangle": 3, "vicreg": 2, "barlow_twins": 2, "mmcr": 4, "lejepa": 4, "visreg": 4}


def small_input(shape: tuple[int, int, int]) -> np.ndarray:
    i = np.arange(math.prod(shape), dtype=np.float64)
    return np.sin(1 + i * i / 7).reshape(shape)


class Torch:
    """The released code, in a process of its own; None in place of an answer where there is none."""

    def __init__(self, python: str | None, released: Path | None, threads: int, folder: Path) -> None:
        """Starts the process, if there is a Python and a folder of checkouts."""
        self.folder, self.process = folder, None
        self.missing: dict[str, str] = {}
        self.version = ""
        if python and released:
            script = str(Path(__file__).with_name("released_torch.py"))
            command = [python, script, "--released", str(released), "--threads", str(threads)]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.version = self._read()["torch"]

    def _read(self) -> dict[str, Any]:
        assert self.process is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the process of the released code ended; its message is above")
        return json.loads(line)

    def ask(self, name: str, z: np.ndarray) -> dict[str, Any] | None:
        """Value, seconds, MB and gradient of a loss; None where its code is not there."""
        if self.process is None or name in self.missing:
            return None
        request = json.dumps({"loss": name, "input": str(self._saved(z))})
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

    def gradient_of_processes(self, name: str, z: np.ndarray, world: int) -> np.ndarray | None:
        """What `DistributedDataParallel` averages, of processes that hold equal shares of the instances."""
        if self.process is None or name in self.missing:
            return None
        file = self._saved(z)
        shared = [*self.process.args, "--split", str(file), "--names", name, "--processes", str(world)]
        workers = [subprocess.Popen([*shared, "--rank", str(rank)]) for rank in range(world)]
        codes = [worker.wait() for worker in workers]
        if any(codes):
            raise SystemExit("a process of the released code failed; its message is above")
        file.with_name(f"{file.name}.store").unlink(missing_ok=True)
        parts = [np.load(file.with_name(f"{name}-{rank}.npy")) for rank in range(world)]
        return np.concatenate(parts, axis=1) / world


def embeddings(shape: tuple[int, int, int]) -> np.ndarray:
    """Noisy views of n random directions."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=shape[1:]) + 0.5 * rng.normal(size=shape)).astype(np.float32)


def compiled(function: Callable[..., Any], z: Array) -> tuple[Callable[[], Any], float]:
    """A program of no argument, and the MB of its temporaries."""
    program = jax.jit(function).lower(z).compile()
    memory = program.memory_analysis()
    assert memory is not None
    return lambda: jax.block_until_ready(program(z)), memory.temp_size_in_bytes / 1e6


def timed(program: Callable[[], Any]) -> float:
    start = time.perf_counter()
    program()
    return time.perf_counter() - start


def measure(name: str, torch: Torch, repeats: int) -> dict[str, Any]:
    """Medians in ms of ours, the floor and the released code, and the memory of ours and of the released code in MB."""
    case = CASES[name]
    z = embeddings(case.shape)
    ours, mb = compiled(jax.value_and_grad(case.loss), jnp.asarray(z))
    floor, _ = compiled(case.floor, jnp.asarray(z))
    seconds: dict[str, list[float]] = {"ours": [], "floor": [], "released": []}
    peak = 0.0
    for turn in range(repeats + 1):
        now = {"ours": timed(ours), "floor": timed(floor)}
        found = torch.ask(name, z)
        if found is not None:
            now["released"] = found["seconds"]
            peak = max(peak, found["mb"])
        time.sleep(0.05)  # until the threads of the other process no longer wait in a loop
        for which in now if turn else ():  # the first turn allocates
            seconds[which].append(now[which])
    medians = {which: statistics.median(s) * 1e3 if s else None for which, s in seconds.items()}
    return {"name": name, "shape": case.shape, "mb": mb, "released_mb": peak or None, **medians}


def cell(number: float | None, digits: int = 1) -> str:
    return "-" if number is None else f"{number:,.{digits}f}"


def bar(ratio: float | None, limit: float, at_most: bool) -> str:
    """A ratio beside its bar, if there is one."""
    if ratio is None or limit in (0, math.inf):
        return cell(ratio)
    return f"{ratio:.1f} ({'at most' if at_most else 'at least'} {limit:g})"


def times_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| objective | (k, n, d) | ours, ms | floor, ms | ours / floor | released, ms | released / ours | ours, MB |"
        " released, MB |",
        "| --- |" + " --- |" * 8,
    ]
    for row in rows:
        case = CASES[row["name"]]
        faster = row["released"] and row["released"] / row["ours"]
        cells = [
            f"`{row['name']}`",
            str(tuple(row["shape"])),
            cell(row["ours"]),
            cell(row["floor"]),
            bar(row["ours"] / row["floor"], case.over_floor, at_most=True),
            cell(row["released"]),
            bar(faster, case.over_released, at_most=False),
            cell(row["mb"], 0),
            cell(row["released_mb"], 0),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def value_of(objective: str, options: dict[str, Any], z: np.ndarray) -> float:
    """Our value in float64; objectives that draw get a key."""
    with jax.enable_x64(True):
        function = losses.objectives()[objective]
        takes = losses.takes(function)
        if takes.key:
            options = options | {"key": jax.random.key(0)}
        return float(losses.on_views(functools.partial(function, **options))(jnp.asarray(z)))


def written(options: dict[str, Any]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in options.items()) or "defaults"


def values(torch: Torch) -> list[list[str]]:
    """Each difference as cells: objective, what differs, our value by the paper, as released, and the released one."""
    rows = []
    for case in DIFFERENCES:
        z = small_input(case.shape)
        found = torch.ask(case.released, z)
        code = "no option"
        if case.code is not None:
            code = (
                f"{value_of(case.objective, case.code, case.prepared(z)):.6f} ({written(case.code)}{case.of})"
            )
        paper = f"{value_of(case.objective, case.paper, z):.6f} ({written(case.paper)})"
        rows.append(
            [f"`{case.objective}`", case.what, paper, code, f"{found['value']:.6f}" if found else "-"]
        )
    return rows


def values_table(rows: list[list[str]]) -> str:
    head = ["objective", "what the released code does otherwise", "ours, by the paper", "ours, as released"]
    head.append("released code")
    return "\n".join(
        [f"| {' | '.join(head)} |", "| --- |" + " --- |" * 4, *(f"| {' | '.join(r)} |" for r in rows)]
    )


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
    function = losses.objectives()[objective]
    options = {"key": jax.random.key(0)} if losses.takes(function).key else {}
    loss = losses.on_views(functools.partial(function, **options))
    return np.asarray(jax.grad(loss)(jnp.asarray(z, jnp.float32)))


def largest(gradient: np.ndarray | None) -> str:
    """The largest entry of a gradient, or how many entries are not finite."""
    if gradient is None:
        return "-"
    lost = int(np.sum(~np.isfinite(gradient)))
    return f"{lost} of {gradient.size} not finite" if lost else f"{np.abs(gradient).max():.3g}"


def edges_table(torch: Torch) -> str:
    lines = ["| objective | input | ours, largest entry | released code |", "| --- | --- | --- | --- |"]
    for name, (what, z) in edges().items():
        found = torch.ask(name, z)
        cells = [f"`{name}`", what, largest(gradient_of(name, z)), largest(found and found["gradient"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def processes_table(torch: Torch, world: int = 2) -> str:
    """The gradient of several processes beside that of one with all instances: length and direction."""
    lines = ["| objective | length, by that of one process | cosine |", "| --- | --- | --- |"]
    for name, views in SPLIT.items():
        z = embeddings((views, 64, 16))
        whole, split = torch.ask(name, z), torch.gradient_of_processes(name, z, world)
        if whole is None or split is None:
            continue
        one, lengths = whole["gradient"], [np.linalg.norm(g) for g in (whole["gradient"], split)]
        cosine = np.sum(one * split) / math.prod(lengths)
        lines.append(f"| `{name}` | {lengths[1] / lengths[0]:.3f} | {cosine:.3f} |")
    return "\n".join(lines)


def page(rows: list[dict[str, Any]], torch: Torch, threads: int, load: float) -> str:
    """docs/design/released.md."""
    clones = [
        f"git clone https://github.com/{repository} released/{repository.split('/')[1]}  # {commit}"
        for repository, commit in REPOSITORIES.items()
    ]
    return PAGE.format(
        clones="\n".join(clones),
        times=times_table(rows),
        needs="\n".join(f"- `{row['name']}`: {CASES[row['name']].needs}" for row in rows),
        torch=torch.version,
        jax=jax.__version__,
        threads=threads,
        load=load,
        streamed=compiled(jax.value_and_grad(CASES["symile_all"].loss), jnp.zeros(WIDE))[1],
    )


REPOSITORIES = {
    "rajesh-lab/symile": "d12e2c8",
    "ispamm/GRAM": "b70c5c2",
    "ispamm/TRIANGLE": "6951d49",
    "Xiaohao-Liu/PMRL": "c3997e9",
    "facebookresearch/vicreg": "4e12602",
    "facebookresearch/barlowtwins": "8e8d284",
    "ThomasYerxa/mmcr": "fafd3a9",
    "OFSkean/FroSSL": "e841c57",
    "tsb0601/EMP-SSL": "8fc3758",
    "lightly-ai/lightly": "e8d317f",
    "rbalestr-lab/lejepa": "eddffdd",
    "HaiyuWu/visreg": "074fb51",
}

PAGE = """# Beside released code

Time and memory of the objectives of the field beside the PyTorch code that their papers released, and beside the bare
products, sines and sorts that they need. Value and gradient in float32 of the same random embeddings, on {threads} CPU
threads for both: jax {jax} compiled, torch {torch} as released, not compiled. Medians of rounds in which
the three take turns; other programs kept {load:.1f} CPUs busy when the run began.
[The objectives' page](../reference/objectives.md#where-a-released-implementation-disagrees-with-its-paper) compares the
values.

{times}

- "ours, MB" are the temporaries that the compiler reserves, "released, MB" the growth of the process at its peak.
- The released steps of GRAM and TRIANGLE compute their matrix twice, once for its rows and once for its columns, which
  with several devices are of different instances. Both are timed, as they are in training.
- `symile_all` is `symile(z)`, `symile_shuffled` is `symile(z, negatives="shuffled", key=key)`, in the released code
  `negative_sampling="n_squared"` and `"n"`. All other options are the defaults, on both sides.
- At (3, 1024, 128) `symile(z)` takes {streamed:.0f} MB for its 1,024³ products; the released code would hold three
  matrices of 1,024 x 1,024² logits, 4.3 GB each.

The floor is the time of what the formula needs, with nothing else:

{needs}

An inner product of all pairs takes one matrix product forward and two backward; a d x d matrix of second moments, which
is symmetric, one and one.

## Running it again

torch is not among the dependencies of this package. A Python of its own holds it, and the repositories are cloned
beside each other; nothing of them is installed or imported, only the definitions of their losses are read:

```sh
python3 -m venv torch-env && torch-env/bin/pip install torch einops numpy  # torch for CPUs is enough
{clones}
beside="--released released --torch-python torch-env/bin/python"
python -m benchmarks.released $beside --write docs/design/released.md
python -m benchmarks.released $beside --values --write docs/reference/objectives.md
```

The commits are those of the table. What is not there is skipped.
"""


def comparisons(torch: Torch) -> dict[str, str]:
    """The tables of `--values`, by the name of their place in docs/reference/objectives.md."""
    return {
        "released values": values_table(values(torch)),
        "released processes": processes_table(torch),
        "released edges": edges_table(torch),
    }


def replaced(text: str, tables: dict[str, str]) -> str:
    """A page with the tables in their places, from `<!-- NAME -->` to `<!-- end -->`.

    Raises:
      ValueError: a place is not there, or there are two.
    """
    for name, table in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(pattern, lambda m, t=table: f"{m[1]}\n{t}\n\n{m[2]}", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page must have one part '<!-- {name} -->', got {count}")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--released", type=Path, help="folder with a checkout of each repository")
    parser.add_argument("--torch-python", help="a Python that has torch, numpy and einops")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--values", action="store_true", help="only the table of values")
    parser.add_argument("--write", type=Path, help="Markdown file")
    options = parser.parse_args()
    if options.write and not (options.released and options.torch_python):
        parser.error("--write needs --released and --torch-python: a page has the numbers of both")
    os.sched_setaffinity(
        0, sorted(os.sched_getaffinity(0))[: options.threads]
    )  # before JAX starts its threads
    jax.config.update("jax_platforms", "cpu")
    with tempfile.TemporaryDirectory() as folder:
        torch = Torch(options.torch_python, options.released, options.threads, Path(folder))
        if options.values:
            tables = comparisons(torch)
            print("\n\n".join(tables.values()))
            if options.write:
                text = options.write.read_text(encoding="utf-8")
                options.write.write_text(replaced(text, tables), encoding="utf-8")
            return
        rows, load = [], os.getloadavg()[0]
        for name in options.only:
            rows.append(measure(name, torch, options.repeats))
            print(times_table(rows[-1:]).splitlines()[-1], flush=True)
        if options.write:
            options.write.write_text(page(rows, torch, options.threads, load), encoding="utf-8")


if __name__ == "__main__":
    main()
