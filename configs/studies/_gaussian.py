"""Shidani 2024, Section 3.1: training on a model whose information is known, networks side by side.

x_αi = c_i + noise, one-dimensional Gaussians: M views of each of K instances. For one objective and one M, several
small networks are trained side by side in one run of `mvcl.training`; then fresh batches give the loss, the paper's
bound on the one-vs-rest information, one that holds, and their gaps.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import _gaussian_grid
import _networks
import jax
import numpy as np

from mvcl import losses, metrics, models, training
from mvcl.studies import Cell, Claim, Measure, Values, Within, trained

Mean = Literal["geometric", "arithmetic", "sufficient_statistics"]


class Objective(NamedTuple):
    """An objective of the study."""

    label: str  # its name in the table
    at: Callable[[float], losses.Loss]  # temperature -> the library's loss of (M, K, d) embeddings
    on_grid: losses.Loss  # the same of inputs and a network, its sums over negatives on a grid
    bound: Callable[[float, int, int], jax.Array]  # (loss, K, M) -> the paper's bound, in nats
    critic: Mean  # aggregation of the scores of the bound that holds, see `metrics.group_scores`
    product: Mean | None  # of likelihoods in the bound of Eq. 5, `_networks.product_mean`; None: InfoNCE


def _poly_view(aggregation: Literal["geometric", "arithmetic"], on_grid: losses.Loss) -> Objective:
    def at(temperature: float) -> losses.Loss:
        return partial(losses.poly_view, temperature=temperature, aggregation=aggregation)

    bound = metrics.printed_poly_view_bound
    return Objective(f"Poly-view, {aggregation}", at, on_grid, bound, aggregation, aggregation)


OBJECTIVES = {  # the objectives of Shidani 2024's Gaussian study, by name
    "geometric": _poly_view("geometric", _gaussian_grid.geometric_on_grid),
    "arithmetic": _poly_view("arithmetic", _gaussian_grid.arithmetic_on_grid),
    "sufficient_statistics": Objective(
        "Sufficient statistics",
        lambda t: partial(losses.sufficient_statistics, temperature=t),
        _gaussian_grid.sufficient_statistics_on_grid,
        metrics.printed_poly_view_bound,
        "sufficient_statistics",
        "sufficient_statistics",
    ),
    "multi_crop": Objective(
        "Multi-Crop (InfoNCE)",
        lambda t: losses.all_pairs(partial(losses.info_nce, temperature=t), pairs="ordered"),
        _gaussian_grid.multi_crop_on_grid,
        lambda loss, instances, _: metrics.multi_crop_bound(loss, instances),
        "geometric",
        None,
    ),
}
GEOMETRIC, ARITHMETIC, SUFFICIENT, MULTI_CROP = (objective.label for objective in OBJECTIVES.values())
SHORT: Mapping[str, Any] = {"epochs": 45, "learning_rate": 5e-3, "evaluation_batches": 3}
"""Options of the small scales: 900 updates at ten times the learning rate, three batches for each network's numbers."""
SMALL = "**Small scale.** 900 updates in place of 4000, at learning rate 5e-3 in place of 5e-4"


def gaussian(
    name: str,
    views: int,
    instances: int = 1024,
    *,
    networks: int = 16,
    epochs: int = 200,
    steps_per_epoch: int = 20,
    evaluation_batches: int = 4,
    signal: float = 1.0,
    noise: float = 0.5,
    temperature: float = 0.1,
    grid: int = 64,
    learning_rate: float = 5e-4,
    end_learning_rate: float = 0.0,
    weight_decay: float = 5e-3,
) -> training.Config:
    """The training of one objective with M views of K instances a batch, several networks side by side.

    Training sums over negatives on a grid of so many nodes, see `geometric_on_grid`; batches of no more vectors than
    nodes, and all with grid 0, are summed exactly. The measured numbers never come from the grid.

    Raises:
      ValueError: there is no such objective, or a number is out of range.
    """
    objective = OBJECTIVES[name]
    exact = objective.at(temperature)
    of_inputs: losses.Loss = partial(_gaussian_grid.of_inputs, objective=exact)
    # With few instances the grid's error is as large as the loss, and a network can be trained to enlarge it.
    if grid and views * instances > grid:
        reach = 6 * math.hypot(signal, noise)
        of_inputs = partial(objective.on_grid, temperature=temperature, nodes=grid, reach=reach)
    steps = epochs * steps_per_epoch
    return training.Config(
        data=_networks.GaussianViews(
            views=views,
            networks=networks,
            instances=steps * instances,
            test_instances=evaluation_batches * max(1, 1024 // instances) * instances,
            signal=signal,
            noise=noise,
        ),
        views=training.Views(k=views, strategy="growing"),  # paper, 3.1
        encoder=models.MLP(widths=(32, 32), norm="none", activation="gelu"),  # paper, 3.1; no norm: ours
        head=models.IdentityHead(),
        objective=of_inputs,
        method=_networks.SideBySide(),
        optimizer=training.AdamW(
            learning_rate=learning_rate,
            end_learning_rate=end_learning_rate,
            reference_batch=None,  # paper, 3.1: one rate
            warmup_epochs=0.0,  # ours
            warmup_share=0.0,  # ours
            b1=0.9,  # ours: PyTorch's
            b2=0.999,  # ours: PyTorch's
            eps=1e-8,  # ours: PyTorch's
            weight_decay=weight_decay,
            decays="all",  # as PyTorch's AdamW, which is given all parameters; a vector of each network is a matrix
        ),
        # Every draw is seen once: the study's epochs are one pass over them.
        train=training.Train(
            epochs=1, batch_size=instances, precision="float32", log_every=min(10, steps), evaluate_every=0
        ),
        mesh=training.Mesh(data=1),
        checkpoint=training.Checkpoint(keep=1),
        evaluation=_networks.InformationBound(
            objective=exact,
            views=views,
            networks=networks,
            instances=instances,
            chance=float(objective.bound(0.0, instances, views)),
            information=metrics.gaussian_information(views, (signal / noise) ** 2),
            temperature=temperature,
            critic=objective.critic,
            product=objective.product,
        ),
    )


def each_network(folder: Path) -> list[Values]:
    """The results of a finished run with networks side by side, one entry for each network.

    Each has "gain of the last third" too, which is of all networks together: their mean loss in the ninth of the run
    before its last third, minus that in its last ninth. It is near 0 where training has come to an end.
    """
    rows = json.loads((folder / "evaluation.json").read_text())["rows"]["trained encoder"]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = {line["step"]: line["mean_loss"] for line in lines if "mean_loss" in line}

    def before(share: float) -> float:
        end = share * max(logged)
        return float(np.mean([loss for step, loss in logged.items() if end - max(logged) / 9 < step <= end]))

    gain = {"gain of the last third": before(2 / 3) - before(1)} if len(logged) >= 9 else {}
    return [
        dict(zip([row["name"] for row in rows], values)) | gain
        for values in zip(*(row["each"] for row in rows))
    ]


def cells(
    names: Sequence[str],
    batches: Sequence[tuple[int, int]],
    networks: int,
    measure: Callable[[Path], Sequence[Values]] = each_network,
    **options: Any,
) -> list[Cell]:
    """A cell for each objective and each M with its instances K."""
    found = []
    for name, (m, instances) in itertools.product(names, batches):
        config = gaussian(name, m, instances, networks=networks, **options)
        found.append(trained({"objective": OBJECTIVES[name].label, "M": m}, config, measure=measure))
    return found


def not_above(what: str, source: str, gap: str) -> Claim:
    """Bounds are not above the information."""
    return Within(f"{what} are not above the information", source, gap, {}, low=0)


FLAT = Measure("gain of the last third", label="loss gained in the last third", digits=4, better="")
_MEASURES = (
    Measure("gap", label="gap, self-normalised", digits=4, better="lower"),
    Measure("gap, Eq. 7", digits=4, better="lower"),
    Measure("bound", label="printed bound", digits=4, better=""),
    Measure("bound, Eq. 5", digits=4),
    Measure("E' e^F", digits=4, better=""),
    Measure("ratio", label="truth / bound", digits=4, better=""),
    Measure("loss", digits=4, better=""),
    Measure("information", label="true information", digits=4, better=""),
    Measure("valid", label="bound that holds", digits=4),
    Measure("two sets", label="half; half, bound that holds", digits=4),
    FLAT,
)
MEASURES = {measure.name: measure for measure in _MEASURES}
