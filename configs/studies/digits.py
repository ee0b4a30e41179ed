"""Digits: every objective of the library on 4 views of an image, by few labels.

Source: ours.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import _digits
import _rows

from mvcl import losses, methods, models
from mvcl.studies import SEEDS, Cell, Study, trained
from mvcl.training import Config

_ABOUT = """\
1,437 training and 360 test digits of 8 x 8 pixels, 4 views of each, a ConvNet of widths 16, 32 and 64, batches of 128,
10 epochs of AdamW at 3e-3: one recipe, `digits:small`, for all rows. No row has a learning rate, a
temperature or a head of its own choice, so a low row may be one that this recipe suits badly. Accuracy of frozen
features of the encoder: logistic regression on 10 and 5 labels of each class, the mean of 10 draws that all rows share;
on all labels; weighted k-NN.

Few labels separate rows. The linear probe on all labels and k-NN hardly do: pixels alone are at 96.4 and 94.4 %, and
one of the 360 test images is 0.28 %.

Temperatures are 0.5 for losses that contrast exponentials of cosines, 0.1 with a queue; other options have the
defaults of the library, which are mostly those of the papers. Every row compares the 128 instances of a batch. Rows of
moco_v2 have a queue of {queue} instances, whose keys are the only negatives; moco_v3 and student_teacher have a
predictor of two layers. BYOL's loss has no negatives and is trained only with a teacher; TRIANGLE is defined for 3
views and has 3. The methods multi_encoder and sem are for given views of different kinds, supervised is no objective
of views."""

_T = 0.5
_QUEUE = 512
_SIMCLR: dict[str, losses.Loss] = {
    "all_pairs(nt_xent)": losses.all_pairs(partial(losses.nt_xent, temperature=_T)),
    "all_pairs(info_nce)": losses.all_pairs(partial(losses.info_nce, temperature=_T, symmetric=True)),
    "all_pairs(dcl)": losses.all_pairs(partial(losses.dcl, temperature=_T)),
    "all_pairs(dhel)": losses.all_pairs(partial(losses.dhel, temperature=_T)),
    "all_pairs(rince)": losses.all_pairs(partial(losses.rince, temperature=_T)),
    "all_pairs(siglip)": losses.all_pairs(losses.siglip),
    "all_pairs(spectral)": losses.all_pairs(losses.spectral),
    "all_pairs(vicreg)": losses.all_pairs(losses.vicreg),
    "all_pairs(barlow_twins)": losses.all_pairs(losses.barlow_twins),
    "one_vs_rest(nt_xent)": losses.one_vs_rest(partial(losses.nt_xent, temperature=_T)),
    "mv_infonce": partial(losses.mv_infonce, temperature=_T),
    "mv_dhel": partial(losses.mv_dhel, temperature=_T),
    "mv_cl1": partial(losses.mv_cl1, temperature=_T),
    "mv_cl2": partial(losses.mv_cl2, temperature=_T),
    "poly_view": partial(losses.poly_view, temperature=_T),
    "poly_view, arithmetic": partial(losses.poly_view, temperature=_T, aggregation="arithmetic"),
    "sufficient_statistics": partial(losses.sufficient_statistics, temperature=_T),
    "poly_siglip": losses.poly_siglip,
    "symile, shuffled": partial(losses.symile, negatives="shuffled"),
    "gram": losses.gram,
    "triangle": losses.triangle,
    "pmrl": losses.pmrl,
    "mmcr": losses.mmcr,
    "frossl": losses.frossl,
    "emp_ssl": losses.emp_ssl,
    "lejepa": losses.lejepa,
    "visreg": losses.visreg,
    "cross_pairs(info_nce)": losses.cross_pairs(partial(losses.info_nce, temperature=_T)),
    "mean_pair(info_nce)": losses.mean_pair(partial(losses.info_nce, temperature=_T), renormalize=False),
    "dsf": losses.dsf,
    "m3g": losses.m3g,
    "all_pairs(m3g_pair)": losses.all_pairs(losses.m3g_pair),
}
_KEY = partial(losses.info_nce, temperature=0.1, in_batch_negatives=False)
_MOCO_V2: dict[str, losses.Loss] = {
    "cross_pairs(info_nce)": losses.cross_pairs(_KEY),
    "mean_pair(info_nce)": losses.mean_pair(_KEY, renormalize=False),
    "dsf": partial(losses.dsf, in_batch_negatives=False),
}
_TAUGHT: dict[str, losses.Loss] = {
    "m3g": losses.m3g,
    "all_pairs(byol)": losses.all_pairs(losses.byol),
    "all_pairs(info_nce)": losses.all_pairs(partial(losses.info_nce, temperature=_T)),
}


def _cells(base: Config) -> list[Cell]:
    """The rows that are trained."""
    predictor = models.MLPHead(layers=2, hidden=128, out=128, norm="batch")
    simclr, student_teacher = methods.Simclr(), methods.StudentTeacher(predictor=predictor)
    moco_v2 = methods.MocoV2(momentum=0.99, end_momentum=0.99, queue=_QUEUE, queue_keys="one")
    moco_v3 = methods.MocoV3(predictor=predictor)
    rows: list[tuple[str, methods.Method, Mapping[str, losses.Loss]]] = [
        ("simclr", simclr, _SIMCLR),
        ("moco_v2", moco_v2, _MOCO_V2),
        ("moco_v3", moco_v3, {"dsf": losses.dsf}),
        ("student_teacher", student_teacher, _TAUGHT),
    ]
    cells = []
    for name, method, of_method in rows:
        for objective, loss in of_method.items():
            k = losses.takes(loss).views or base.views.k
            changes = {"objective": loss, "method": method, "views.k": k}
            cells.append(trained({"method": name, "objective": objective}, base, changes))
    return cells


_PAIRS = ("all_pairs(nt_xent)", "one_vs_rest(nt_xent)")
# Claim, source, method, objective and those that it is compared with.
_OF_PAPERS = (
    (
        "MV-DHEL is better than MV-InfoNCE and the baselines of pairs, averages and poly-view",
        *("Koromilas 2025, Table II", "simclr", "mv_dhel", ("mv_infonce", *_PAIRS, "poly_view")),
    ),
    (
        "M3G with a teacher is better than InfoNCE and BYOL of pairs",
        *("Piran 2024, Table 1", "student_teacher", "m3g", ("all_pairs(info_nce)", "all_pairs(byol)")),
    ),
    (
        "DSF in MoCo v2 is better than InfoNCE of pairs and of means",
        *("Jeon 2025, Table 1", "moco_v2", "dsf", ("cross_pairs(info_nce)", "mean_pair(info_nce)")),
    ),
)


def _study(base: Config, cells: Sequence[Cell], of_papers: Sequence[Any], **scale: Any) -> Study:
    untrained = _rows.untrained(base, {"method": "none", "objective": ""})
    every = "every row of {} is better than the {}"
    above: list[_rows.Row] = [
        (every.format(method, cell.factors["objective"]), {"method": method}, [cell.factors])
        for method in dict.fromkeys(cell.factors["method"] for cell in cells)
        for cell in untrained
    ]
    claims = _rows.above("ours", _digits.FEW, above)
    for text, source, method, name, others in of_papers:
        row = (text, {"method": method, "objective": name}, _rows.levels("objective", others))
        claims += _rows.above(f"{source}, on other data", _digits.FEW, [row])
    return Study(
        title="Digits: every objective on 4 views",
        about=_ABOUT.format(queue=_QUEUE),
        cells=(*untrained, *cells),
        measures=_digits.ACCURACIES,
        claims=claims,
        reference={"method": "simclr", "objective": "all_pairs(nt_xent)"},
        **scale,
    )


def small(seeds: int = SEEDS) -> Study:
    """Digits, all objectives and two baselines."""
    base, cost = _digits.digits_of(4), "3.7 hours in one process, on 2 cores with other work"
    return _study(base, _cells(base), _OF_PAPERS, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Random vectors, the first objective and the baselines."""
    base = _digits.vectors_of(4)
    return _study(base, _cells(base)[:1], (), seeds=seeds, cost="under a minute on 2 cores")
