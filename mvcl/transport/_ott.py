"""The pieces of ott-jax that are used, imported without the warning that its own dependency raises."""

import warnings

with warnings.catch_warnings():
    # ott imports jaxopt, which warns on import that it is no longer maintained; no user of ours can act on it.
    warnings.simplefilter("ignore", DeprecationWarning)
    from ott.geometry.costs import CostFn
    from ott.geometry.epsilon_scheduler import Epsilon

__all__ = ["CostFn", "Epsilon"]
