"""Control: DSF against InfoNCE by temperature and learning rate.

DSF (Jeon 2025) has no temperature, but the lengths of the groups' means act as one, and the paper gives it twice the
learning rate of the averages. Is its gain that of another temperature or rate?
Source: ours; Jeon 2025, Sections 5.5 ("τ is not required") and 5.6.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import _digits
import _jeon
import _rows

from mvcl import losses
from mvcl.studies import SEEDS, Factors, Measure, Study, Within, trained
from mvcl.training import Config

# The effective temperature at T = 1, d = 128 and a mean of length 0.9: R = 0.855.
_R2 = (0.95 * 0.9) ** 2
_EXAMPLE = f"{(1 - _R2) / (_R2 * (1 - _R2 / 128)):.3f}"
_ABOUT = f"""\
{_jeon.ON_DIGITS} Two queries and two keys, 20 epochs, here at three learning rates.

What depends on the query alone cancels in the softmax of DSF, whose logits are then

    A_i κ_j <μ_i, μ_j> / T - g(κ_j) / T,    g(κ) = log I_ν(κ) - ν log κ,

where InfoNCE of the same directions has <μ_i, μ_j> / t. So T / (A_i κ_j) has the place of InfoNCE's temperature t:
the *effective temperature* of a pair. With A = R and κ = R (d - R²) / (d (1 - R²)), as the released code trains, it
is (1 - R²) / (R² (1 - R²/d)) at T = 1: 0.109 at d = 128 for groups of one view, whose R is 0.95, and {_EXAMPLE} at a
mean of length 0.9. It differs from pair to pair, with their concentrations, and drifts in training, so that no t has
the temperature of a run of DSF; the measures are T / (mean A · mean κ), that of the mean pair, and the standard
deviation of log κ ("spread"), over the last tenth of the steps.

So DSF at its own T, of which the paper takes 1, is beside InfoNCE at several t, each at three learning rates: the t
that is nearest to the measured effective temperature, and the best, are read from the table. "InfoNCE of means"
compares the directions of the groups' means, "InfoNCE of pairs" (loss_avg) single views. A row whose loss does not
end below the chance level has learned nothing of the instances ("below chance", the mean over the last tenth of the
steps)."""
_MEANS, _PAIRS = "InfoNCE of means", "InfoNCE of pairs"


def _objectives(
    temperatures: Sequence[float], of_dsf: Sequence[float]
) -> dict[tuple[str, float], losses.Loss]:
    found: dict[tuple[str, float], losses.Loss] = {
        ("DSF", t): partial(losses.dsf, temperature=t, in_batch_negatives=False) for t in of_dsf
    }
    for t in temperatures:
        pair = partial(losses.info_nce, temperature=t, in_batch_negatives=False)
        found[_MEANS, t] = losses.mean_pair(pair, renormalize=True)
        found[_PAIRS, t] = losses.cross_pairs(pair)
    return found


def _study(
    base: Config, objectives: dict[tuple[str, float], losses.Loss], rates: Sequence[float], **scale: Any
) -> Study:
    dsf: Factors = {"similarity": "DSF", "t": 1.0}
    cells = []
    for (similarity, t), objective in objectives.items():
        for rate in rates:
            changes = {"objective": objective, "optimizer.learning_rate": rate}
            factors: Factors = {"similarity": similarity, "t": t, "rate": rate}
            cells.append(trained(factors, base, changes, measure=_jeon.results_and_learning))
    above = [
        (f"DSF at T = 1 is above {name} at t = {t:g}, at each rate", dsf, [{"similarity": name, "t": t}])
        for name, t in objectives
        if name != "DSF"
    ]
    measures = (
        *_digits.ACCURACIES,
        Measure("below chance", digits=2),
        Measure("effective temperature", digits=3, better=""),
        Measure("spread", label="spread of log κ", digits=2, better=""),
    )
    return Study(
        title="Control: DSF against InfoNCE by temperature and learning rate",
        about=_ABOUT,
        cells=cells,
        measures=measures,
        claims=[
            Within("every row learns: its loss ends below chance", "ours", "below chance", {}, low=0),
            *_rows.above("ours", _digits.FEW, above),
        ],
        columns="rate",
        reference=dsf,
        along="rate",
        **scale,
    )


def small(seeds: int = SEEDS) -> Study:
    """Digits, two queries and two keys; T of 0.5, 1 and 2, t of 0.1, 0.2 and 0.5, three rates."""
    base, rates = _jeon.on_digits(_jeon.digits_of(4))["DSF"], (1e-3, 3e-3, 1e-2)
    objectives, cost = _objectives((0.1, 0.2, 0.5), (0.5, 1.0, 2.0)), "2 hours on 2 cores, estimated"
    return _study(base, objectives, rates, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Random vectors, two groups of 2."""
    base, objectives = _jeon.smoke(4)["DSF"], _objectives((0.5,), (1.0,))
    return _study(base, objectives, (3e-3,), seeds=seeds, cost="under a minute on 2 cores")
