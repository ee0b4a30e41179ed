"""Studies: grids of runs, what is measured of each cell, and the claims of a paper that they decide."""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.studies._claims import (
        Above,
        Alike,
        Bootstrapped,
        Claim,
        Gain,
        Trend,
        Verdict,
        Within,
        difference,
    )
    from mvcl.studies._grid import (
        Baseline,
        Cell,
        Factors,
        Found,
        Measure,
        Noise,
        Opened,
        Study,
        Task,
        Training,
        Values,
        changed,
        costs,
        find,
        partner,
        results,
        scales,
        select,
        study_files,
        trained,
        without_data,
    )
    from mvcl.studies._run import Look, Options, Place, look, overview, places, run
    from mvcl.studies._table import page, rows, run_study

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
