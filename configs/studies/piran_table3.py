"""Piran 2024, Table 3: sleep stages from EEG with few labels, M3G against pairwise InfoNCE.

Section 4.3: pre-training on six channels of PhysioNet 2018, probes on SleepEDFx; needs both (docs/how_to/data.md).
"""

from functools import partial
from typing import Any

import _rows

from mvcl import losses, studies, training
from mvcl.studies import Cell, Measure, Study, Training
from mvcl.training import Config

_ABOUT = """\
The recipe is `piran/eeg` (docs/papers/piran.md has every setting and its source, and says where text and caption
differ). M3G compares 16 windows, InfoNCE 64 and, in a row that the paper does not have, 16. A seed has labels,
validation people and initial weights of the classifier of its own (evaluation.seed). Balanced accuracy of a linear
combination of the channels and a linear classifier.

The text says that M3G performs better than InfoNCE; of the printed numbers this is so of 10, 100 and 1000 labels a
class, and not of 50 (49.2 and 49.3). The paper has one number of channels, k = 6."""

M3G, INFO_NCE, EQUAL = "M3G", "InfoNCE pwe", "InfoNCE pwe, n = 16"
_PRINTED = {M3G: (36.6, 49.2, 56.1, 64.6), INFO_NCE: (35.5, 49.3, 52.2, 56.3)}


def paper(seeds: int = 5) -> Study:
    """PhysioNet 2018 and SleepEDFx, 10 epochs."""
    cost = _rows.of_gpus(550, "of 5 seeds")
    return _study(training.load("piran/eeg"), 64, (10, 50, 100, 1000), printed_runs=5, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Some steps of a narrow network on random windows of 10 seconds."""
    return _study(training.load("piran/eeg:smoke"), 16, (2, 5), seeds=seeds, cost="seconds")


def _study(base: Config, batch: int, labels: tuple[int, ...], **scale: Any) -> Study:
    equal = {"objective": losses.all_pairs(partial(losses.nt_xent, temperature=0.5))}
    names, cells, claims = [f"{count} labels/class" for count in labels], [], []
    for method, changes in ((INFO_NCE, {**equal, "train.batch_size": batch}), (EQUAL, equal), (M3G, {})):
        task = Training(config=studies.changed(base, changes), seeded=("train.seed", "evaluation.seed"))
        printed = dict(zip(names, _PRINTED.get(method, ()))) if len(names) == 4 else {}
        cells.append(Cell({"method": method}, task, printed))
    for name in names:
        text, m3g = "M3G is above pairwise InfoNCE", {"method": M3G}
        row = (f"{text} with {name}", m3g, [{"method": INFO_NCE}])
        claims += _rows.above("Section 4.3, Table 3", name, [row])
        row = (f"{text} of as many windows with {name}", m3g, [{"method": EQUAL}])
        claims += _rows.above("ours", name, [row])
    return Study(
        unequal="The paper's InfoNCE compares 64 windows and its M3G 16; InfoNCE of 16 is there too.",
        title="Piran 2024, Table 3: sleep stages from EEG",
        about=_ABOUT,
        cells=cells,
        measures=[Measure(name, percent=True) for name in names],
        claims=claims,
        reference={"method": M3G},
        **scale,
    )
