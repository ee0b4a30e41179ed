"""Xu 2023, Figure 5: weights and losses of two pairs of views, and the accuracy of three views, over SEM's training.

`--data DIR` has Caltech.mat (docs/how_to/data.md). The curves are in report.html of each run (`mvcl report RUN`).
"""

from functools import partial
from pathlib import Path

import _sem

from mvcl import data as sources
from mvcl import studies
from mvcl.studies import Above, Measure, Study, Within, trained
from mvcl.training import Config

_SEM, _PLAIN = "SEM", "InfoNCE without W and R"
_ABOUT = """\
Four rounds of 100 epochs on Caltech; the released code sets 4 rounds and then 3. Views 4 and 5 are of high quality,
view 1 of low. "Before" is after the reconstruction, "after" the end of training. The weight of a pair is its mean over
the rounds, the gap the least difference of the two pairs' weights over the rounds. The part of a loss that is left is
the mean over training of the fall that is still ahead, 1 at the start: it is smaller for the pair whose loss falls
earlier. The paper has one run, shown as curves without numbers; the row without W and R is the comparison with its
Figure 2, which has two views only. [The paper's page](../papers/xu.md) has the origin of every setting."""
_SMALL = """

**Small scale.** handwritten.mat, which is not from the paper, with networks of 64 units, 15 epochs of reconstruction
and 2 rounds of 10. View 5, whose clusters are the worst after this short reconstruction, takes the place of view 1;
views 6 and 1, whose are the best, those of 4 and 5."""


def paper(seeds: int = 10, *, data: Path) -> Study:
    """Caltech, four rounds.

    Args:
      data: folder with Caltech.mat.
    """
    four = {"train.epochs": 500.0, "evaluation.svm_share": 0}
    base = studies.changed(_sem.paper("Caltech", data), four)
    cost = "4 hours on 2 CPU cores, of the estimate in `xu/sem`"
    return _study(base, 6, 1, (4, 5), seeds, cost, _ABOUT)


def small(seeds: int = 5, *, data: Path) -> Study:
    """Handwritten numerals, two rounds.

    Args:
      data: handwritten.mat.
    """
    base = studies.changed(_sem.small(sources.Tables(path=str(data))), {"method.watch_epochs": 2})
    return _study(base, 6, 5, (6, 1), seeds, "2 CPU cores, 1 minute", _ABOUT + _SMALL)


def smoke(seeds: int = 2) -> Study:
    """Two epochs on random tables."""
    return _study(_sem.smoke(), 4, 1, (3, 4), seeds, "seconds", _ABOUT)


def _study(
    base: Config, views: int, low: int, good: tuple[int, int], seeds: int, cost: str, about: str
) -> Study:
    first, second = good
    strong, weak = (min(good), max(good)), (min(low, first), max(low, first))
    measure = partial(_sem.over_time, numbers=tuple(range(1, views + 1)), compared=(strong, weak))
    plain = studies.changed(base, {"method.weights": "none", "method.lam": 0.0})
    shown = (low, first, second)
    pairs = [f"{a}-{b}" for a, b in (strong, weak)]
    source = "Section 4.3, Figure 5"
    return Study(
        title="Xu 2023, Figure 5: SEM during training",
        about=about,
        cells=tuple(
            trained({"method": name}, config, measure=measure)
            for name, config in ((_SEM, base), (_PLAIN, plain))
        ),
        measures=(
            *(
                Measure(f"view {view} {when}", percent=True)
                for view in shown
                for when in ("before", "after", "change")
            ),
            *(Measure(f"{pair} weight", digits=3, better="") for pair in pairs),
            Measure("weight gap", digits=3, better=""),
            *(Measure(f"{pair} loss left", digits=3, better="lower") for pair in pairs),
            Measure("lag", digits=3, better=""),
        ),
        claims=(
            Within(
                f"the weight of views {first} and {second} is above that of {low} and {first} in every round",
                source + "(a)",
                "weight gap",
                {"method": _SEM},
                low=0.0,
            ),
            Within(
                f"the loss of views {first} and {second} falls earlier than that of {low} and {first}",
                source + "(b)",
                "lag",
                {"method": _SEM},
                low=0.0,
            ),
            *(
                Within(
                    f"view {view} gets better",
                    source + "(c)",
                    f"view {view} change",
                    {"method": _SEM},
                    low=0.0,
                )
                for view in shown
            ),
            Above(
                f"view {first} ends better than without weights and reconstruction: less degeneration",
                source + "(c) and Figure 2(c)",
                f"view {first} after",
                {"method": _SEM},
                ({"method": _PLAIN},),
            ),
        ),
        reference={"method": _PLAIN},
        seeds=seeds,
        cost=cost,
    )
