"""Ways of training: models and an objective, put together as pure functions."""

from collections.abc import Callable

from mvcl.methods._method import Learner, Method, Network, Pieces
from mvcl.methods._objective import OBJECTIVES, PAIR_OBJECTIVES, Objective, PairObjective, chance_level, check
from mvcl.methods._simclr import Simclr

METHODS: dict[str, Callable[[], Method]] = {"simclr": Simclr}

__all__ = [
    "METHODS",
    "OBJECTIVES",
    "PAIR_OBJECTIVES",
    "Learner",
    "Method",
    "Network",
    "Objective",
    "PairObjective",
    "Pieces",
    "Simclr",
    "chance_level",
    "check",
]
