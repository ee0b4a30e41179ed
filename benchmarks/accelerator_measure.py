"""The measurements of `benchmarks.accelerator`: programs that take turns, ratios of each turn, medians of those."""

import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import accelerator_cases as cases
from benchmarks import collectives, transport
from benchmarks.harness import MIB, milliseconds, program_of, ratio, repeated, turns
from benchmarks.released import Torch
from mvcl import losses, training
from mvcl.training import _cost


def of_loss(name: str, n: int, size: cases.Size, torch: Torch) -> dict[str, Any]:
    """Value and gradient of an objective beside its bare products and beside released code, in float32."""
    shape = cases.shape_of(name, n, size)
    host = np.random.default_rng(0)
    directions = host.normal(size=shape[1:])
    host_z = (directions + 0.5 * host.normal(size=shape)).astype(np.float32)
    z = jnp.asarray(host_z)
    with jax.default_matmul_precision("highest"):  # as the objectives and PyTorch have it by default
        ours, mib = program_of(jax.value_and_grad(cases.loss_of(name)), z)
        floor, _ = program_of(cases.FLOORS[name], z)
        flops = collectives.traced(jax.make_jaxpr(cases.FLOORS[name])(z).jaxpr, 1).flops
    programs = {"ours": repeated(ours), "floor": repeated(floor)}
    code = {"symile": "symile_all"}.get(name, name)
    theirs = torch.ask(code, host_z)
    if theirs is not None:
        programs["torch"] = lambda calls: torch.ask(code, host_z, calls)["seconds"]
    seconds = turns(programs, size.rounds)
    found = {
        "shape": shape,
        "ms": milliseconds(seconds["ours"]),
        "mib": mib,
        "floor_gflop": flops / 1e9,
        "over_floor": ratio(seconds["ours"], seconds["floor"]),
    }
    if theirs is None:
        return found
    return found | {"torch_over_ours": ratio(seconds["torch"], seconds["ours"]), "torch_mb": theirs["mb"]}


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
        self._batch = jax.tree.map(filled, _cost.abstract_batch(program, config, outline))
        self._state = program.init()
        self.flops = _cost.step_flops(program, self._batch)
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
    peak, flops = _cost.peak_flops(), step.flops
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
