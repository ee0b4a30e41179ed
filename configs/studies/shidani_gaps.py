"""Shidani 2024, Theorems 2.3 and C.1: both gaps of both means in models where they can be computed, by M.

No training.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import _gaussian
import _rows
import numpy as np

from mvcl import metrics
from mvcl.studies import Cell, Claim, Study, Trend, Values, Within

_ABOUT = """\
A critic F2 of two views is aggregated over the n = M - 1 views other than x: F = log mean exp F2 (arithmetic, Eq. 9) or
F = mean F2 (geometric, Eq. 10). I(M) is the information between x and the others, E the joint law, E' the product of
the marginals, and there are two gaps:

    gap of Eq. 7         I(M) - (E[F] - E'[e^F] + 1) = E[g - log g - 1]      of the bound of Eq. 5, at least 0
    self-normalised gap  I(M) - E[F] = I(M) - (log(B - M + 1) - loss)        of the printed bound of Theorem 2.2

They differ by 1 - E'[e^F]: with many instances that is 0 for the arithmetic mean, and positive for the geometric by
Jensen's inequality (Eq. 85), which the proof of Theorem 2.2 gives away. Both are computed for K to infinity.

**The models.** A bit: c is 0 or 1 with equal probability, and a view is c, flipped with probability 1/4 or 1/10; sums
over all outcomes, exact. Gaussian: the model of Figure 2, deviations 1 and 0.5; closed forms, and for the arithmetic
mean at M > 2 an average over draws, so that its cells alone vary with the seed. F2 is the best critic of pairs, log
p(x, y) / p(x) p(y), for which both gaps are 0 at M = 2 and which the geometric poly-view loss trains at every M, since
each of its terms compares two views; and, for the bit, also the critic that has the largest bound of Eq. 5 for this M
and mean.

**By hand.** The bit with 1/4 at M = 3, with the best critic of pairs, log 5/4 where two views agree and log 3/4 where
not: both others agree with x with probability 7/16 (5/16 under E'), one with 3/8 (3/8), none with 3/16 (5/16), so that
I(3) = 7/16 log 7/5 + 3/16 log 3/5 = 0.0514 and I(2) = 0.0316. Arithmetic: E[F] = 7/16 log 5/4 + 3/16 log 3/4 = 0.0437,
E'[e^F] = 1, both gaps 7/16 log 28/25 + 3/16 log 4/5 = 0.0077. Geometric: E[F] = I(2), E'[e^F] = 5/8 + 3/8 sqrt(15/16) =
0.9881, the gap of Eq. 7 is 0.0079 and the self-normalised one I(3) - I(2) = 0.0198. Theorem 2.3 wants the gap at M = 3
to be at most that at M = 2, and Theorem C.1 (Eq. 8) at most the mean gap of the pairs: both are 0. So both theorems are
false, for both means and both gaps.

**The step that fails.** The proofs write g = c e^F with c = p(x) p(Y) / p(x, Y) (Eqs. 59 and 60) and keep c while M
changes. But E[log c] = -I(M). In Eqs. 61 to 63 the right-hand side should be the gap of a pair, with c of two views;
what stands there has c of M views, which is larger by I(M) - I(2). In Eqs. 92 to 94 (arithmetic) and 96, 101 and 102
(geometric) c of the larger M is read as that of the smaller. So what is proved is that the bound of Eq. 5 never falls
(footnote 3), for a fixed F2, and not that the gap does not grow. For the poly-view loss F2 has the negatives of all M
views (Eq. 75), so that F2 is not fixed either.

**Which mean has the smaller gap** depends on the gap, the critic and the model. With one critic of pairs the arithmetic
mean has the smaller self-normalised gap always, as log mean exp F2 >= mean F2. By Eq. 7 the geometric has the smaller
one in the Gaussian model; in the bit models the order changes with M. `mvcl study shidani_figure2` trains a critic on
each loss."""

_MEASURES = ("gap, Eq. 7", "gap", "bound, Eq. 5", "E' e^F", "information")
Mean = Literal["arithmetic", "geometric"]
_LABELS = {"gap, Eq. 7": "gap of Eq. 7", "gap": "self-normalised gap"}
PAIRS, BEST = "of pairs", "best of Eq. 5"
BITS = {"bit, 1/4": 0.25, "bit, 1/10": 0.1}
_CORRELATION = 0.8  # of two views of the Gaussian model: 1 / (1 + 0.5²)


def agreement(flip: float, views: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number of the M - 1 other views that equal x, 0 to M - 1: itself, its joint law, and the product's."""
    n, keep = views - 1, 1 - flip
    k = np.arange(n + 1)
    ways = np.array([math.comb(n, int(j)) for j in k], float)
    of_class, of_other = keep**k * flip ** (n - k), flip**k * keep ** (n - k)
    return k, ways * (keep * of_class + flip * of_other), ways * (of_class + of_other) / 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gaps:
    """Both gaps of one model, mean, critic and M; a `Task`."""

    law: str
    """Of `BITS`, or "Gaussian"."""
    mean: Literal["arithmetic", "geometric"]
    """Aggregation of the critic over the other views."""
    critic: str
    """`PAIRS` or `BEST`."""
    views: int
    """M."""
    draws: int = 400_000
    """Of the Gaussian model with the arithmetic mean; the standard error of E[F] is about 0.7 / sqrt(draws)."""

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """The information, the bound of Eq. 5 and the gaps; exact values are rounded to 12 digits."""
        if self.law == "Gaussian":
            information, joint, product = self._gaussian(seed)
        else:
            information, joint, product = self._bit(BITS[self.law])
        found = {"information": information, "E' e^F": product, "bound, Eq. 5": joint - product + 1}
        found |= {"gap": information - joint, "gap, Eq. 7": information - joint + product - 1}
        return [{name: round(value, 12) for name, value in found.items()}]

    def _bit(self, flip: float) -> tuple[float, float, float]:
        """I(M), E[F] and E'[e^F]."""
        from scipy.optimize import minimize

        k, joint, product = agreement(flip, self.views)
        n = self.views - 1
        _, of_pair, of_independent = agreement(flip, 2)
        best_of_pairs = np.log(of_pair / of_independent)  # F2 where two views differ, and where they agree

        def expectations(scores: np.ndarray) -> tuple[float, float]:
            differ, agree = scores
            f = (k * agree + (n - k) * differ) / n
            if self.mean == "arithmetic":
                f = np.log((k * math.exp(agree) + (n - k) * math.exp(differ)) / n)
            return float(joint @ f), float(product @ np.exp(f))

        def lost(scores: np.ndarray) -> float:
            in_joint, in_product = expectations(scores)
            return in_product - in_joint

        scores = best_of_pairs
        if self.critic == BEST:  # a concave problem of two numbers
            exact = {"xatol": 1e-10, "fatol": 1e-15, "maxiter": 4000}
            scores = minimize(lost, best_of_pairs, method="Nelder-Mead", options=exact).x
        return float(joint @ np.log(joint / product)), *expectations(scores)

    def _gaussian(self, seed: int) -> tuple[float, float, float]:
        """I(M), E[F] and E'[e^F] of views of unit variance, and the best critic of pairs.

        F2 = -log(v)/2 + x²/2 - (x - ρy)²/(2v), v = 1 - ρ². The geometric F is a constant minus u'Au/2, u = (x, Y), and
        E'[e^F] = v^(-1/2) det(1 + C A)^(-1/2), C the covariance under the product.
        """
        m, n, rho = self.views, self.views - 1, _CORRELATION
        v = 1 - rho**2
        information, pair = (metrics.gaussian_information(of, 4.0) for of in (m, 2))
        if self.mean == "arithmetic" and n > 1:
            rng = np.random.default_rng((seed, m))
            shared, x_noise = rng.standard_normal((2, self.draws, 1))
            x = math.sqrt(rho) * shared + math.sqrt(1 - rho) * x_noise
            y = math.sqrt(rho) * shared + math.sqrt(1 - rho) * rng.standard_normal((self.draws, n))
            scores = -math.log(v) / 2 + x**2 / 2 - (x - rho * y) ** 2 / (2 * v)
            return information, float(np.log(np.exp(scores).mean(1)).mean()), 1.0
        quadratic, covariance = np.zeros((m, m)), np.eye(m)
        quadratic[0, 0], quadratic[0, 1:], quadratic[1:, 0] = 1 / v - 1, -rho / (v * n), -rho / (v * n)
        quadratic[1:, 1:] = np.eye(n) * rho**2 / (v * n)
        covariance[1:, 1:] += rho * (1 - np.eye(n))
        product = (v * np.linalg.det(np.eye(m) + covariance @ quadratic)) ** -0.5
        return information, pair, float(product)


def paper(seeds: int = 5) -> Study:
    """M up to 16."""
    return _study((2, 3, 4, 5, 8, 16), 400_000, seeds, "2 CPU cores, 20 seconds")


def smoke(seeds: int = 2) -> Study:
    """M up to 3."""
    return _study((2, 3), 10_000, seeds, "seconds")


def _study(views: tuple[int, ...], draws: int, seeds: int, cost: str) -> Study:
    laws = [(law, PAIRS) for law in (*BITS, "Gaussian")] + [(law, BEST) for law in BITS]
    means: tuple[Mean, ...] = ("arithmetic", "geometric")
    cells, other = list[Cell](), [{"mean": "geometric"}]
    claims: list[Claim] = [_gaussian.not_above("The bounds of Eq. 5", "Theorem 2.1", "gap, Eq. 7")]
    for (law, critic), mean in itertools.product(laws, means):
        of, cell = f"{mean}, {law}, critic {critic}", {"model": law, "critic": critic, "mean": mean}
        for m in views:
            task = Gaps(law=law, mean=mean, critic=critic, views=m, draws=draws)
            cells.append(Cell({**cell, "M": m}, task))
        fixed = critic == PAIRS
        for measure in ("gap, Eq. 7", "gap") if fixed else ("gap, Eq. 7",):
            text = f"The {_LABELS[measure]} falls with M: {of}"
            claims.append(Trend(text, "Theorem 2.3", measure, cell, "M", rises=False))
        if fixed:  # one critic for pairs and for M views
            text = f"The gap of Eq. 7 is at most that of pairs: {of}"
            claims.append(Within(text, "Theorem C.1, Eq. 8", "gap, Eq. 7", cell, than=[{"M": 2}], high=0))
            text = f"The bound of Eq. 5 rises with M: {of}"
            claims.append(Trend(text, "footnote 3", "bound, Eq. 5", cell, "M"))
    for measure, (law, critic) in itertools.product(_LABELS, laws[:3]):
        text = f"Geometric has the smaller {_LABELS[measure]}: {law}, critic {critic}, M = {{M}}"
        cell = {"model": law, "critic": critic, "mean": "arithmetic"}
        claims += _rows.above("Figure 2", measure, _rows.each(text, cell, other, M=sorted({3, views[-1]})))
    return Study(
        title="Shidani 2024, Theorems 2.3 and C.1: both gaps, computed",
        about=_ABOUT,
        cells=cells,
        measures=[_gaussian.MEASURES[name] for name in _MEASURES],
        claims=claims,
        along="M",
        seeds=seeds,
        cost=cost,
    )
