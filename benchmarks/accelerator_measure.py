"""The measurements of `benchmarks.accelerator`: programs that take turns, ratios of each turn, medians of those."""

import hashlib
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import accelerator_cases as cases
from benchmarks import scale, transport
from mvcl import losses, training
from mvcl.training import _clock, _program

Seconds = Callable[[int], float]  # of one call, the mean of so many in a row
_TURN = 0.02  # seconds of a program's turn at least, if 50 calls take so long
_CALLS = 50
_PIECE = 60.0  # seconds after which a piece takes no more turns than three
MIB = 2**20


def repeated(run: Callable[[], Any]) -> Seconds:
    """Time calls in a row; the last is waited for."""

    def seconds(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            out = run()
        jax.block_until_ready(out)
        return (time.perf_counter() - start) / calls

    return seconds


def turns(programs: Mapping[str, Seconds], rounds: int) -> dict[str, list[float]]:
    """Seconds of each program's calls, in so many turns; the program that begins is another in each.

    The programs have run once. A turn is as many calls as take 20 ms, and at most 50.
    """
    calls = {name: int(min(max(_TURN / seconds(1), 1), _CALLS)) for name, seconds in programs.items()}
    found: dict[str, list[float]] = {name: [] for name in programs}
    end = time.perf_counter() + _PIECE
    for turn in range(rounds):
        if turn >= 3 and time.perf_counter() > end:
            break
        for name in [*programs, *programs][turn % len(programs) :][: len(programs)]:
            found[name].append(programs[name](calls[name]))
    return found


def ratio(above: list[float], below: list[float]) -> dict[str, float]:
    """Median and quartiles of the ratios of the same turns."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"low": low, "median": median, "high": high}


def milliseconds(found: list[float]) -> float:
    return statistics.median(found) * 1e3


def program_of(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[[], Any], float]:
    """A compiled program that has run once, as a function of nothing, and the MiB of its temporaries."""
    program = jax.jit(function).lower(*arguments).compile()
    jax.block_until_ready(program(*arguments))
    memory = program.memory_analysis()
    assert memory is not None
    return lambda: program(*arguments), memory.temp_size_in_bytes / MIB


class Torch:
    """PyTorch's side, in a process of its own on the same device; see accelerator_torch.py."""

    def __init__(self, process: "subprocess.Popen[str] | None", version: str, folder: Path) -> None:
        """For a process whose first line is read, or for none."""
        self._process, self.version, self._folder = process, version, folder

    def ask(self, name: str, z: np.ndarray, calls: int, *, gradient: bool = False) -> dict[str, Any] | None:
        """Value, seconds, source, and the gradient if asked for; None where there is none."""
        if self._process is None:
            return None
        file = self._folder / f"{hashlib.sha256(z.tobytes()).hexdigest()[:16]}.npy"
        if not file.exists():
            np.save(file, z)
        saved = self._folder / "gradient.npy"
        request = {"loss": name, "input": str(file), "calls": calls}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(
            json.dumps(request | {"gradient": str(saved) if gradient else None}),
            file=self._process.stdin,
            flush=True,
        )
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process of PyTorch ended; its message is above")
        found = json.loads(line)
        if gradient and "missing" not in found:
            found["gradient"] = np.load(saved)
        return found


@contextmanager
def torch_beside(python: str | None, released: Path | None, folder: Path) -> Iterator[Torch]:
    """PyTorch on the device of jax, or nothing where `python` is None.

    Raises:
      ValueError: that Python has no torch, or torch does not see the device.
    """
    if python is None:
        yield Torch(None, "", folder)
        return
    device = {"gpu": "cuda", "cpu": "cpu"}.get(jax.default_backend())
    if device is None:
        raise ValueError(
            f"--torch-python needs a GPU or a CPU, got {jax.default_backend()}: torch runs on no other"
        )
    script = str(Path(__file__).with_name("accelerator_torch.py"))
    command = [python, script, "--device", device]
    command += [] if released is None else ["--released", str(released)]
    wrong = f"--torch-python must be a Python that has torch and numpy, got {python!r}"
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise ValueError(f"{wrong}: {error}") from error
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = json.loads(line) if line else {"missing": "it ended; its message is above"}
            if "missing" in found:
                raise ValueError(f"{wrong}: {found['missing']}")
            yield Torch(process, found["torch"], folder)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # ends it


def of_loss(name: str, n: int, size: cases.Size, torch: Torch) -> dict[str, Any]:
    """Value and gradient of an objective beside its bare products and beside PyTorch, in float32."""
    shape = cases.shape_of(name, n, size)
    host = np.random.default_rng(0)
    directions = host.normal(size=shape[1:])
    host_z = (directions + 0.5 * host.normal(size=shape)).astype(np.float32)
    z = jnp.asarray(host_z)
    with jax.default_matmul_precision("highest"):  # as the objectives and PyTorch have it by default
        ours, mib = program_of(jax.value_and_grad(cases.loss_of(name)), z)
        floor, _ = program_of(cases.FLOORS[name], z)
        flops = scale.traced(jax.make_jaxpr(cases.FLOORS[name])(z).jaxpr, 1).flops
    programs = {"ours": repeated(ours), "floor": repeated(floor)}
    theirs = torch.ask(name, host_z, 1, gradient=True)
    reason = "no PyTorch was given" if theirs is None else theirs.get("missing", "")
    if theirs is not None and not reason:

        def ask(calls: int) -> float:
            answer = torch.ask(name, host_z, calls)
            assert answer is not None
            if "missing" in answer:
                raise RuntimeError(f"PyTorch stopped in a turn: {answer['missing']}")
            return answer["seconds"]

        programs["torch"] = ask
    seconds = turns(programs, size.rounds)
    found = {
        "shape": shape,
        "ms": milliseconds(seconds["ours"]),
        "mib": mib,
        "floor_gflop": flops / 1e9,
        "over_floor": ratio(seconds["ours"], seconds["floor"]),
        "torch_missing": reason,
    }
    if "torch" not in programs:
        return found
    _, gradient = ours()
    apart = np.linalg.norm(theirs["gradient"] - gradient) / np.linalg.norm(gradient)
    # Draws differ, and released code has options of its own.
    comparable = theirs["source"] == "formula" and not cases.draws(name)
    return found | {
        "torch_over_ours": ratio(seconds["torch"], seconds["ours"]),
        "torch_source": theirs["source"],
        "torch_mib": theirs["mib"],
        "gradient_difference": float(apart) if comparable else None,
    }


def of_transport(n: int, k: int, size: cases.Size) -> dict[str, Any]:
    """M3G's value and gradient beside the bare products of as many passes, and beside ott's dense solver."""
    z = transport.embeddings(n, k)
    ours, mib = program_of(jax.value_and_grad(transport.ours, has_aux=True), z)
    bare, _ = program_of(transport.bare_products(n, k), z[0] @ z[1].T)
    gram, _ = program_of(transport.gram_products, z)
    programs = {"ours": repeated(ours), "pass": repeated(bare), "gram": repeated(gram)}
    dense_mib = None
    if (n, k) in size.dense:
        dense, dense_mib = program_of(jax.value_and_grad(transport.otts, has_aux=True), z)
        programs["ott"] = repeated(dense)
    seconds = turns(programs, size.rounds)
    (_, status), _ = ours()
    sweeps = int(status.n_iters)
    # Passes: two a sweep, and the one that measures the last iterate; three for the gradient.
    floor = [(2 * sweeps + 4) * a + 3 * b for a, b in zip(seconds["pass"], seconds["gram"], strict=True)]
    found = {
        "ms": milliseconds(seconds["ours"]),
        "mib": mib,
        "sweeps": sweeps,
        "converged": bool(status.converged),
        "over_floor": ratio(seconds["ours"], floor),
    }
    if "ott" not in seconds:
        return found
    return found | {"ott_over_ours": ratio(seconds["ott"], seconds["ours"]), "ott_mib": dense_mib}


class Step:
    """A compiled training step with a state and a batch of random images."""

    def __init__(self, objective: losses.Loss, k: int, encoder: str, size: cases.Size) -> None:
        """Compiled, and run twice."""
        config, outline = cases.step_config(objective, k, encoder, size)
        program = training.build(config, outline)
        rng = np.random.default_rng(0)

        def filled(x: jax.ShapeDtypeStruct) -> jax.Array:
            return jax.device_put(rng.integers(0, 255, x.shape).astype(x.dtype), x.sharding)

        self.examples = config.examples
        self._batch = jax.tree.map(filled, _program.abstract_batch(program, config, outline))
        self._state = program.init()
        self.flops = _clock.step_flops(program.step, self._state, self._batch)
        jitted: Any = program.step
        self._step = jitted.lower(self._state, self._batch).compile()
        self.mib = self._step.memory_analysis().temp_size_in_bytes / MIB
        for _ in range(2):
            jax.block_until_ready(self.run())

    def run(self) -> Any:
        """One step."""
        self._state, values = self._step(self._state, self._batch)
        return values


def of_step(name: str, encoder: str, size: cases.Size) -> dict[str, Any]:
    """A training step beside that of the reference objective at the same k, and beside a bare product in bfloat16."""
    k = cases.views_of(name)
    step = Step(training.CHOICES["objective"][name](), k, encoder, size)
    reference = Step(losses.all_pairs(losses.info_nce), k, encoder, size)
    m = size.product
    square = jnp.asarray(np.random.default_rng(0).normal(size=(m, m)), jnp.bfloat16)
    product, _ = program_of(lambda a: a @ a, square)
    found = turns(
        {"step": repeated(step.run), "reference": repeated(reference.run), "product": repeated(product)},
        size.rounds,
    )
    peak, flops = _clock.peak_flops(), step.flops
    rates = [(flops or 0.0) / (2 * m**3) * seconds for seconds in found["product"]]
    achieved = None if flops is None else flops / statistics.median(found["step"])
    return {
        "k": k,
        "examples": step.examples,
        "ms": milliseconds(found["step"]),
        "over_reference": ratio(found["step"], found["reference"]),
        "tflop": None if flops is None else flops / 1e12,
        "of_peak": None if peak is None or achieved is None else achieved / peak,
        "of_product": None if flops is None else ratio(rates, found["step"]),
        "mib": step.mib,
    }


def of_recipe(config: training.Config, folder: Path) -> dict[str, Any]:
    """Train the recipe from where its folder stands, evaluate it, and tell what the folder has.

    Raises:
      Interrupted: a signal stopped it; the next call goes on.
    """
    table = training.train(config, folder)
    scores = {result.name: result.value for result in table["trained encoder"]}
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    rows = [line for line in lines if "loss" in line]
    whole = [sum(row[f"seconds_{part}"] for part in ("data", "step", "log")) for row in rows]
    shares = [row["model_flops_utilisation"] for row in rows if "model_flops_utilisation" in row]
    return {
        "k": config.views.k,
        "steps": rows[-1]["step"],
        "linear": scores["linear"],
        "knn": scores["k-NN"],
        "ms": milliseconds(whole),
        "of_peak": statistics.median(shares) if shares else None,
        "hours": rows[-1]["seconds"] / 3600,
    }
