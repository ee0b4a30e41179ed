"""Studies: grids of runs, what is measured of each cell, and the claims of a paper that they decide."""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.studies._claims import (
        ANSWERS,
        OPEN,
        Above,
        Claim,
        Trend,
        Verdict,
        Within,
        difference,
        enough_seeds,
        too_few,
    )
    from mvcl.studies._grid import (
        SEEDS,
        Baseline,
        Cell,
        Factors,
        Found,
        Margin,
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
    from mvcl.studies._page import page
    from mvcl.studies._run import Look, Options, Place, look, overview, places, run
    from mvcl.studies._table import compare, judged, rows, run_study, write

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
