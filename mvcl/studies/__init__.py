"""A paper's synthetic study as one function: a config in; numbers, a figure and a page out."""

from mvcl import _extras

with _extras.needed("train", by="mvcl.studies"):
    import flax  # noqa: F401
    import optax  # noqa: F401

from mvcl.studies._gaussian import (
    OBJECTIVES,
    Gaussian,
    dry_run,
    load,
    numbers,
    objective_loss,
    page,
    plot,
    run,
    table,
    through_grid,
    verdict,
)

__all__ = [
    "OBJECTIVES",
    "Gaussian",
    "dry_run",
    "load",
    "numbers",
    "objective_loss",
    "page",
    "plot",
    "run",
    "table",
    "through_grid",
    "verdict",
]
