"""Control: M3G's epsilon by the number of instances n.

Piran 2024 suspects that epsilon should scale with n (Section 6.2), and says that a smaller epsilon takes more sweeps
(Section 2.3); neither is measured there.
Source: ours.
"""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import _digits
import numpy as np

from mvcl import losses, studies
from mvcl.studies import SEEDS, Above, Claim, Measure, Study, Trend, Values, trained
from mvcl.training import Config

_ABOUT = """\
M3G of 4 views in batches of n examples, 200 steps for every n, so that a larger n sees more examples; all else is the
same. Sweeps are those that the solver takes in a step, the mean over the logged steps, at most 100. Epsilon should grow
with n if a larger epsilon gains more at the largest n than at the smallest."""


def results_and_sweeps(folder: Path) -> list[Values]:
    """`results`, and "sweeps", the mean of `solver_iterations` over the logged steps."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    sweeps = float(np.mean([row["solver_iterations"] for row in rows if "solver_iterations" in row]))
    return [of | {"sweeps": sweeps} for of in studies.results(folder)]


def small(seeds: int = SEEDS) -> Study:
    """Digits, 4 views."""
    base = studies.changed(_digits.digits_of(4), {"train.steps": 200})
    measures, cost = _digits.ACCURACIES, "44 minutes on 2 cores, estimated"
    return _study(base, (0.05, 0.1, 0.2, 0.5), (16, 32, 64, 128), measures, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Random vectors, 2 views."""
    return _study(_digits.vectors_of(2), (0.1, 0.5), (8, 16), _digits.LINEAR, seeds=seeds, cost="seconds")


def _study(
    base: Config, epsilons: Sequence[float], ns: Sequence[int], measures: tuple[Measure, ...], **scale: Any
) -> Study:
    cells = []
    for n in ns:
        for epsilon in epsilons:
            changes = {"train.batch_size": n, "objective": partial(losses.m3g, epsilon=epsilon)}
            cells.append(trained({"n": n, "epsilon": epsilon}, base, changes, measure=results_and_sweeps))
    grows, falls = "epsilon should grow with n", "a smaller epsilon takes more sweeps, n = {}"
    first, last = {"n": ns[0]}, {"n": ns[-1]}
    claims: list[Claim] = [Above(grows, "Section 6.2", measures[0].name, last, (first,), "epsilon")]
    claims += [Trend(falls.format(n), "Section 2.3", "sweeps", {"n": n}, "epsilon", rises=False) for n in ns]
    return Study(
        unequal="The number of instances is what is compared.",
        title="Control: M3G's epsilon by the number of instances",
        about=_ABOUT,
        cells=cells,
        measures=(*measures, Measure("sweeps", label="sweeps a step", better="")),
        claims=claims,
        columns="n",
        along="epsilon",
        **scale,
    )
