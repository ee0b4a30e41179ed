"""Training steps by rematerialisation, M3G and the losses on an accelerator, in slices of minutes that resume.

    python -m benchmarks.accelerator --list                      # what is done and what is left
    python -m benchmarks.accelerator                             # one slice
    python -m benchmarks.accelerator --write docs/design         # accelerator.md and .json of what was measured
    python -m benchmarks.accelerator --size small                # tiny shapes: a check of the code on a CPU

A slice measures pieces in a fixed order and keeps each in OUT/SIZE.json as soon as it ends. It begins none that would
not end within --minutes, and stops one that does not; the same command goes on with the next. Each piece is a process
of its own: its peak of memory is not that of an earlier one, and what ends it, such as memory that ran out, ends
nothing else. docs/design/accelerator.md describes the numbers.
"""

import argparse
import ctypes
import functools
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import harness, released
from benchmarks.harness import number
from benchmarks.released_cases import CASES
from docs import objectives
from mvcl import _configs, _files, augment, data, losses, models, studies, training
from mvcl.studies import _run
from mvcl.training import _cost, _memory, _session

Record = dict[str, Any]
ENCODERS: dict[str, tuple[models.EncoderConfig, augment.Policy]] = {
    "ResNet-50": (models.ResNet(depth=50), augment.simclr()),
    "ViT-B/16": (models.ENCODERS["vit_b16"](), augment.simclr()),
    "ConvNet": (models.ConvNet(widths=(4, 4)), augment.digits(image_size=8)),
}
POLICIES = ("none", "blocks", "full")
SOLVER = ("64 3", "64 4", "256 4", "1024 4", "4096 3", "16384 2", "64 6")
# Of each size the pieces in the order in which they are measured: part and arguments.
PIECES = {
    "full": [
        *(
            f"steps {e} {views} {p}"
            for views in (256, 1024)
            for e in ("ResNet-50", "ViT-B/16")
            for p in POLICIES
        ),
        *(f"m3g paper {k}" for k in (2, 3, 4)),
        *(f"solver {n_and_k}" for n_and_k in SOLVER),
        *(f"losses {name} {times}" for times in (1, 4) for name in CASES if CASES[name].beside is None),
    ],
    "small": [*(f"steps ConvNet 16 {p}" for p in POLICIES), "m3g smoke 2", "solver 8 3", "losses mv_cl1 1"],
}
# Of each part what a piece may take before one was measured; none begins with less time left.
SECONDS = {"steps": 150, "m3g": 300, "solver": 90, "losses": 45}
ROUNDS, _PRODUCT = {"full": 15, "small": 3}, {"full": 8192, "small": 64}  # turns; rows of a square matrix
_STARTS = 3  # times that a piece is begun and does not end; what one of them compiled the next one loads
_WARM_UP = 3  # calls: a GPU's first ones allocate, and record graphs
_TURN = 0.5  # seconds of steps in a row at least, so that waiting for the last is no part of them
_RESULT = "result of the piece: "


class Running:
    """A config's step on one device and on batches of random images that lie there."""

    def __init__(self, config: training.Config, pixels: int) -> None:
        self.config = config = studies.changed(config, {"mesh": training.Mesh(data=1)})
        self.outline = outline = data.Outline(
            20 * config.examples, 10, data.ExampleSpec(((pixels, pixels, 3),))
        )
        self.program = training.build(config, outline)
        self.values: Any = None  # of the last step
        self.shapes = _cost.abstract_batch(self.program, config, outline)
        self.model = functools.partial(_memory.Model, config, outline, jax.default_backend())

    def flops(self) -> float:
        """Of the matrix products and convolutions of a step."""
        return self.model().on(1).flops

    def compile(self) -> int:
        """Bytes of the compiled step: arguments, temporaries and what it writes elsewhere."""
        step: Any = self.program.step
        self.compiled = step.lower(self.program.abstract_state, self.shapes).compile()
        memory = self.compiled.memory_analysis()
        written = memory.output_size_in_bytes - memory.alias_size_in_bytes
        return memory.argument_size_in_bytes + memory.temp_size_in_bytes + written

    def warm_up(self) -> None:
        """Make the batches and take the first steps, which are not timed."""
        rng = np.random.default_rng(0)

        def random(leaf: jax.ShapeDtypeStruct) -> jax.Array:
            return jax.device_put(rng.integers(0, 256, leaf.shape).astype(leaf.dtype), leaf.sharding)

        self.batches = itertools.cycle([jax.tree.map(random, self.shapes) for _ in range(2)])
        self.state = self.program.init()
        for _ in range(_WARM_UP):
            jax.block_until_ready(self.step())

    def step(self) -> Any:
        """Start a step, which takes the state of the one before; the values that it will log."""
        self.state, self.values = self.compiled(self.state, next(self.batches))
        return self.values


def of_steps(found: Record, size: str, encoder: str, views: int, policy: str) -> None:
    """A training step with a policy of rematerialisation, in turns with a bare product in bfloat16."""
    network, crops = ENCODERS[encoder]
    config = training.Config(
        views=training.Views(k=2, policy=crops),
        encoder=network,
        head=models.MLPHead(out=128),
        objective=losses.nt_xent,
        train=training.Train(steps=10**6, batch_size=views // 2),
    )
    run = Running(studies.changed(config, {"train.remat": policy}), crops.image_size)
    found |= {"needed_flops": Running(config, crops.image_size).flops(), "flops": run.flops()}
    found["bytes"] = run.compile()
    run.warm_up()
    found["peak_bytes"] = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    m = _PRODUCT[size]
    square = jnp.asarray(np.random.default_rng(0).normal(size=(m, m)), jnp.bfloat16)
    product, _ = harness.program_of(lambda a: a @ a, square)
    programs = {"step": harness.repeated(run.step), "product": harness.repeated(product)}
    seconds = harness.turns(programs, ROUNDS[size], least=_TURN)
    over = harness.ratio(seconds["product"], seconds["step"])
    median = statistics.median(seconds["step"])
    speed = _session.full_speed(run.config, run.outline, run.program.mesh)
    found |= {"ms": 1e3 * median, "views_per_second": views / median}
    if found["needed_flops"]:
        found["of_product"] = found["needed_flops"] / (2 * m**3) * over["median"]
        found["of_peak"] = speed and 1 / (median * speed)


def of_m3g(found: Record, size: str, scale: str, k: int) -> None:
    """The steps of Piran 2024, Figure 4, at one k, in turns."""
    study = getattr(training.config_module(_configs.STUDIES / "piran_figure4.py"), scale)()
    tasks: Any = {c.factors["method"]: c.task for c in study.cells if c.factors["k"] == k}
    configs = {"": tasks["M3G"].config, "average_": tasks["InfoNCE ave"].config}
    configs["pairwise_"] = tasks["M3G"].reference
    runs = {name: Running(config, config.data.image_size) for name, config in configs.items()}
    found |= {f"{name}bytes": run.compile() for name, run in runs.items()}
    for run in runs.values():
        run.warm_up()
    programs = {name: harness.repeated(run.step) for name, run in runs.items()}
    seconds = harness.turns(programs, ROUNDS[size], least=_TURN)
    for name, taken in seconds.items():
        found[f"{name}ms"] = harness.milliseconds(taken)
        found[f"{name}over_pairwise"] = harness.ratio(taken, seconds["pairwise_"])
    found["sweeps"] = int(runs[""].values["solver_iterations"])


def of_solver(found: Record, size: str, n: int, k: int) -> None:
    from benchmarks import transport  # which imports ott

    found |= transport.measure_case(n, k, with_ott=n**k <= 2**24, rounds=ROUNDS[size], budget=60.0)
    found["ms"] = 1e3 * found["seconds"]


def of_loss(found: Record, size: str, name: str, times: int, torch: released.Torch) -> None:
    """Value and gradient of a loss beside its bare products and its released code, in float32."""
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter  # as PyTorch's side
    with jax.default_matmul_precision("highest"):  # as the objectives and PyTorch have it by default
        found |= released.measure(name, torch, ROUNDS[size], times=times, clock=clock)
    ours, floor, theirs = (found[f"{side}_ms"] for side in released.SIDES)
    found |= {"over_floor": floor and ours / floor, "released_over_ours": theirs and theirs / ours}
    found["missing"] = torch.missing.get(name)


def measured(name: str, options: argparse.Namespace, folder: Path) -> Record:
    """What a piece found; "failed" says why it ended before."""
    first, size, found = jax.devices()[0], options.size, {}
    if size == "full" and first.platform == "cpu":
        return {"refused": "jax finds no accelerator; --size small checks the code on a CPU"}
    python = options.torch_python if name.startswith("losses") else None
    torch = released.Torch(python, options.released, folder, {"gpu": "cuda"}.get(first.platform, "cpu"))
    found |= {"device": f"{first.device_kind}, {first.platform}", "torch": torch.version} | _run._provenance()
    try:
        match name.split():
            case ["steps", encoder, views, policy]:
                of_steps(found, size, encoder, int(views), policy)
            case ["m3g", scale, k]:
                of_m3g(found, size, scale, int(k))
            case ["solver", n, k]:
                of_solver(found, size, int(n), int(k))
            case [_, loss, times]:
                of_loss(found, size, loss, int(times), torch)
    except RuntimeError as error:  # of XLA: memory, mostly
        found["failed"] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    return found


def child(options: argparse.Namespace) -> int:
    """Measure the piece of --piece and print what it found."""
    if sys.platform == "linux":  # end with the parent: an orphan would hold the device in the next slice
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != options.parent:
        return 1
    training.compilation_cache()
    with tempfile.TemporaryDirectory() as folder:
        print(_RESULT + json.dumps(measured(options.piece, options, Path(folder))), flush=True)
    return 0


def started(name: str, options: argparse.Namespace, seconds: float) -> Record | None:
    """What a process of its own found of a piece; None if it did not end in so many seconds."""
    command = [sys.executable, "-m", "benchmarks.accelerator", "--piece", name, "--size", options.size]
    command += ["--parent", str(os.getpid())]
    for option, value in (("--released", options.released), ("--torch-python", options.torch_python)):
        command += [option, str(value)] if value else []
    # jax takes three quarters of a GPU's memory when it starts: here all of it, or, beside PyTorch, what it needs.
    setting = ("PREALLOCATE", "false") if name.startswith("losses") else ("MEM_FRACTION", "0.95")
    environment = {f"XLA_PYTHON_CLIENT_{setting[0]}": setting[1]} | os.environ
    with tempfile.TemporaryFile("w+") as said:
        try:
            done = subprocess.run(command, stdout=said, stderr=said, env=environment, timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        said.seek(0)
        lines = [line for line in said.read().splitlines() if line.strip()] or ["no output"]
    for line in lines:
        if line.startswith(_RESULT):
            return json.loads(line.removeprefix(_RESULT))
    print("\n".join(lines[-20:]), file=sys.stderr)
    return {"failed": f"exit code {done.returncode}: {lines[-1][:120]}"}


def state(found: Mapping[str, Any]) -> str:
    """One of done, failed and left."""
    return "failed" if "failed" in found else "done" if "took" in found else "left"


def read(path: Path, size: str) -> Record:
    """What was measured so far; of a file that is not there, nothing. `ValueError` names a damaged file."""
    if not path.is_file():
        return {"size": size, "device": None, "pieces": {}}
    with _files.reading(path, "record of this benchmark"):
        return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write_whole(path, json.dumps(record, indent=1) + "\n")


def run_slice(record: Record, path: Path, chosen: Sequence[str], options: argparse.Namespace) -> None:
    """Measure what is left of these pieces, until the time is over; the first has all of it."""
    pieces, end = record["pieces"], time.monotonic() + 60 * options.minutes
    left = [name for name in chosen if state(pieces.get(name, {})) == "left"]
    for i, name in enumerate(left):
        begun, part = time.monotonic(), name.split()[0]
        known = (p["took"] for other, p in pieces.items() if other.startswith(part) and state(p) == "done")
        expected = max(known, default=SECONDS[part])
        if i and begun + expected > end:
            print(f"{name} may take {expected:.0f} s: it is for the next slice", flush=True)
            break
        print(f"piece {chosen.index(name) + 1} of {len(chosen)}: {name}", flush=True)
        starts = pieces.get(name, {}).get("starts", 0) + 1
        pieces[name] = {"starts": starts}
        write(path, record)  # before it begins, so that a slice that is killed has counted the start
        found = started(name, options, end - begun)
        if found is None and starts >= _STARTS:
            found = {"failed": f"did not end when it was begun {starts} times"}
        device = (found or {}).get("device", record["device"])
        if found and ("refused" in found or record["device"] not in (None, device)):
            del pieces[name]
            write(path, record)
            other = f"{path} was measured on {record['device']}, and this is {device}: choose another --out"
            raise ValueError(found.get("refused", other))
        record["device"] = device
        if found is not None:
            pieces[name] = {"took": time.monotonic() - begun, **found}
        write(path, record)


def ratio(found: Mapping[str, float]) -> str:
    return f"{found['median']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


SHARE, SCALES = "{:.0%}".format, (1.0, 1e-12, 1 / 2**20, 1 / 2**30)
FINE, TERA, MIB, GIB = (functools.partial(number, digits=2, scale=scale) for scale in SCALES)
# Of each part the heads of its pieces' arguments, and of each column its head, the result, and how it is printed.
TABLES: dict[str, tuple[list[str], list[Any]]] = {
    "steps": (
        ["encoder", "views", "remat"],
        [("step, ms", "ms", number), ("views / s", "views_per_second", number)]
        + [("share of the peak", "of_peak", SHARE), ("of a product", "of_product", SHARE)]
        + [("TFLOP needed", "needed_flops", TERA), ("computed", "flops", TERA)]
        + [("compiled, GiB", "bytes", GIB), ("held, GiB", "peak_bytes", GIB)],
    ),
    "m3g": (
        ["scale", "k"],
        [("M3G / pairwise", "over_pairwise", ratio), ("average / pairwise", "average_over_pairwise", ratio)]
        + [("M3G, ms", "ms", number), ("pairwise, ms", "pairwise_ms", number), ("sweeps", "sweeps", str)]
        + [("M3G, GiB", "bytes", GIB), ("pairwise, GiB", "pairwise_bytes", GIB)],
    ),
    "solver": (
        ["n", "k"],
        [("ms", "ms", FINE), ("sweeps", "sweeps", str), ("converged", "converged", str)]
        + [("ours / floor", "over_floor", ratio), ("ott / ours", "ott_over_ours", ratio)]
        + [("MiB", "bytes", MIB), ("ott, MiB", "ott_bytes", MIB)],
    ),
    "losses": (
        ["loss", "times n"],
        [("(k, n, d)", "shape", lambda shape: str(tuple(shape))), ("ms", "ours_ms", FINE)]
        + [("ours / floor", "over_floor", FINE), ("released / ours", "released_over_ours", FINE)]
        + [("MB", "ours_mb", number), ("released, MB", "released_mb", number)]
        + [("gradients differ by", "gradient_difference", "{:.0e}".format)],
    ),
}


def table(part: str, record: Record) -> str:
    """The rows of a part that were begun, and how many were not."""
    arguments, columns = TABLES[part]
    head, rows = [*arguments, *(head for head, _, _ in columns), ""], []
    names = [name for name in PIECES[record["size"]] if name.startswith(part)]
    for name in names:
        found = record["pieces"].get(name, {})
        if state(found) != "left":
            cells = ["-" if found.get(key) is None else form(found[key]) for _, key, form in columns]
            rows.append([*name.split()[1:], *cells, found.get("failed") or found.get("missing") or ""])
    if left := len(names) - len(rows):
        rows.append([f"{left} of {len(names)} rows", "not run", *[""] * (len(head) - 2)])
    return harness.table(head, rows)


def parts(record: Record) -> dict[str, str]:
    """The generated parts of docs/design/accelerator.md, by their place."""
    done = [found for found in record["pieces"].values() if state(found) == "done"]
    machine = "It was not run yet."
    if done:
        made = dict.fromkeys(f"jax {p['versions']['jax']}, commit {p['commit']}" for p in done)
        machine = f"Size {record['size']}, on {record['device']} ({done[0]['machine']}); {'; '.join(made)}"
        machine += f"; torch {max(p['torch'] for p in done) or 'absent'}."
    return {"machine": machine + "\n"} | {part: table(part, record) + "\n" for part in TABLES}


def listed(record: Record, names: Sequence[str]) -> str:
    """A line for each piece, and how many are done."""
    found = {name: record["pieces"].get(name, {}) for name in names}
    lines = [f"{state(p):<7} {name:<32} {p.get('failed', '')}".rstrip() for name, p in found.items()]
    return "\n".join([*lines, f"{len(names)} pieces: {dict(Counter(map(state, found.values())))}"])


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = harness.parser_of(__doc__)
    parser.add_argument("--size", choices=tuple(PIECES), default="full")
    parser.add_argument("--out", type=Path, default=Path("runs/accelerator"), help="folder of the record")
    parser.add_argument("--minutes", type=float, default=9.0, help="time of the slice")
    parser.add_argument("--only", nargs="+", choices=[*TABLES], default=[*TABLES], help="parts to measure")
    parser.add_argument("--again", nargs="+", metavar="PIECE", default=(), help="forget these pieces first")
    parser.add_argument("--released", type=Path, help="folder with checkouts of released code")
    parser.add_argument("--torch-python", help="a Python that has torch and numpy, which runs that code")
    parser.add_argument("--list", action="store_true", help="print what is done, failed and left")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the page there")
    parser.add_argument("--piece", help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        parser.error(f"--minutes must be positive, got {options.minutes:g}")
    if unknown := set(options.again) - set(PIECES[options.size]):
        parser.error(f"--again must name pieces of --list, got {min(unknown)!r}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out the command; 1 if a piece has failed, 2 if it cannot be carried out."""
    options = parsed(arguments)
    if options.piece:
        return child(options)
    path = options.out / f"{options.size}.json"
    chosen = [name for name in PIECES[options.size] if name.split()[0] in options.only]
    try:
        record = read(path, options.size)
        if options.write:
            page = options.write / "accelerator.md"
            _files.write_whole(page, objectives.written(page, parts(record)))
            write(page.with_suffix(".json"), record)
        elif not options.list:
            for name in options.again:
                record["pieces"].pop(name, None)
            run_slice(record, path, chosen, options)
    except ValueError as error:
        print(f"benchmarks.accelerator: {error}", file=sys.stderr)
        return 2
    text = listed(record, chosen)
    print(text if options.list else text.splitlines()[-1], flush=True)
    return int("failed" in {state(record["pieces"].get(name, {})) for name in chosen})


if __name__ == "__main__":
    sys.exit(main())
