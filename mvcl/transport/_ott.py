"""The pieces of ott-jax that are used, imported when they first are.

ott takes longer to import than the rest of the package, and most losses have no use for it.
"""

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    with warnings.catch_warnings():
        # ott imports jaxopt, which warns on import that it is no longer maintained; no user of ours can act on it.
        warnings.simplefilter("ignore", DeprecationWarning)
        if name == "CostFn":
            from ott.geometry.costs import CostFn

            return CostFn
        if name == "Epsilon":
            from ott.geometry.epsilon_scheduler import Epsilon

            return Epsilon
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
