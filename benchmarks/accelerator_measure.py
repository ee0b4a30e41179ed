"""The measurements of `benchmarks.accelerator`: programs that take turns, ratios of each turn, medians of those."""

import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import accelerator_cases as cases
from benchmarks import collectives, overhead
from benchmarks.harness import MIB, embeddings, loss_of, milliseconds, program_of, ratio, repeated, turns
from benchmarks.released import Torch
from mvcl import losses, training
from mvcl.training import _cost


def of_loss(name: str, n: int, size: cases.Size, torch: Torch) -> dict[str, Any]:
    """Value and gradient of an objective beside its bare products and beside released code, in float32."""
    shape = cases.shape_of(name, n, size)
    host_z = embeddings(shape)
    z = jnp.asarray(host_z)
    with jax.default_matmul_precision("highest"):  # as the objectives and PyTorch have it by default
        ours, mib = program_of(jax.value_and_grad(loss_of(training.CHOICES["objective"][name]())), z)
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


def of_step(name: str, encoder: str, size: cases.Size) -> dict[str, Any]:
    """A training step beside that of the reference objective at the same k, and beside a bare product in bfloat16."""
    k = cases.views_of(name)
    objectives = training.CHOICES["objective"][name](), losses.all_pairs(losses.info_nce)
    step, reference = (cases.step(objective, k, encoder, size) for objective in objectives)
    for run in (step, reference, step, reference):
        run.step()
    m = size.product
    square = jnp.asarray(np.random.default_rng(0).normal(size=(m, m)), jnp.bfloat16)
    product, _ = program_of(lambda a: a @ a, square)
    found = turns(
        {"step": repeated(step.step), "reference": repeated(reference.step), "product": repeated(product)},
        size.rounds,
    )
    peak, flops = _cost.peak_flops(), _cost.step_flops(step.program, step.batch)
    rates = [(flops or 0.0) / (2 * m**3) * seconds for seconds in found["product"]]
    achieved = None if flops is None else flops / statistics.median(found["step"])
    return {
        "k": k,
        "examples": size.views // k,
        "ms": milliseconds(found["step"]),
        "over_reference": ratio(found["step"], found["reference"]),
        "tflop": None if flops is None else flops / 1e12,
        "of_peak": None if peak is None or achieved is None else achieved / peak,
        "of_product": None if flops is None else ratio(rates, found["step"]),
        "mib": overhead.STEPS.memory(step) * 1e6 / MIB,
    }
