"""Control: poly-view contrast over rho, which mean of the likelihoods.

Shidani 2024 has the arithmetic (rho = 1) and the geometric mean (rho = 0) of the likelihoods of a view's k - 1
partners, and its pseudocode the harmonic one (rho = -1). They are three of one family, (1/rho) log mean l^rho, of
which no paper trains others.
Source: ours.
"""

from functools import partial
from typing import Any

import _digits

from mvcl import losses
from mvcl.studies import SEEDS, Study, Trend, trained
from mvcl.training import Config

_ABOUT = """\
`poly_view(aggregation=rho)` takes the power mean of order rho of the likelihoods with which a view finds each of its
k - 1 partners. A low rho weighs the partner that is found worst, a high one that which is found best: as rho falls the
loss asks that every partner is found, as it rises that some partner is. rho = 1 is the paper's "arithmetic", 0 its
"geometric" mean, which is the pairwise loss with more negatives, and -1, "harmonic", what the paper's pseudocode
computes under the name of arithmetic. At k = 2 all are `nt_xent`. Temperature {temperature}; images, epochs, batch and
learning rate are the same for all. The loss with a rho far from 0 has its gradient on fewer pairs, so effects of rho
are also effects of noise in the gradient."""


def _study(base: Config, rhos: tuple[float, ...], temperature: float, **scale: Any) -> Study:
    loss = partial(losses.poly_view, temperature=temperature)
    falls = "accuracy falls as rho rises, from every partner to some partner"
    means = (("geometric", 0.0, "arithmetic (rho 1)"), ("harmonic", -1.0, "geometric (rho 0)"))
    better = "the {} mean (rho {:g}) is better than the {}"
    return _digits.control(
        [(better.format(name, rho, other), {"rho": rho}, [{"rho": rho + 1}]) for name, rho, other in means],
        [Trend(falls, "ours", _digits.FEW, {}, "rho", rises=False)],
        title="Control: poly-view contrast over rho",
        about=_ABOUT.format(temperature=temperature),
        cells=[trained({"rho": rho}, base, {"objective": partial(loss, aggregation=rho)}) for rho in rhos],
        reference={"rho": 0.0},
        along="rho",
        **scale,
    )


def small(seeds: int = SEEDS) -> Study:
    """Digits, 4 views."""
    cost = "16 minutes in one process, on 2 cores with other work"
    return _study(_digits.digits_of(4), (-4.0, -1.0, 0.0, 1.0, 4.0), 0.1, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Random vectors, 3 views."""
    return _study(_digits.vectors_of(3), (-1.0, 0.0, 1.0), 0.5, seeds=seeds, cost="under a minute on 2 cores")
