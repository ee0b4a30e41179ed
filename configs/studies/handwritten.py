"""Six real views of handwritten digits, an encoder for each, and every objective that compares six views.

docs/how_to/data.md has the origin of the file. No paper has this grid, so there is no scale paper and no claim.
Each objective has its own defaults, which are its source's values where the source names some
(docs/reference/objectives.md); exceptions: NT-Xent at SEM's temperature 1.0 in the row SEM; LeJEPA with 128 slices
and VISReg with 256, not 1024 and 4096, for the time; Symile with shuffled negatives, since all of them are n^5; M3G
of six views on groups of 16 of the 256 digits of a step, since a pass takes n^6 operations, beside three others on such
groups.
Left out: TRIANGLE, which compares three views; BYOL, which needs a teacher or a predictor, of which the method of
several encoders has none. A loss of pairs is there as the mean over the pairs of views, and of each view with the
mean of the others.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mvcl import data as sources
from mvcl import evaluation, losses, methods, models, studies
from mvcl.studies import SEEDS, Baseline, Cell, Measure, Study, trained
from mvcl.training import AdamW, Checkpoint, Config, Train

_PAIRS: Mapping[str, losses.Loss] = {
    "InfoNCE": losses.info_nce,
    "NT-Xent": losses.nt_xent,
    "DCL": losses.dcl,
    "DHEL": losses.dhel,
    "SigLIP": losses.siglip,
    "spectral": losses.spectral,
    "RINCE": losses.rince,
    "VICReg": losses.vicreg,
    "Barlow Twins": losses.barlow_twins,
    "M3G pair": losses.m3g_pair,
}
_JOINT: Mapping[str, losses.Loss] = {
    "MV-InfoNCE": losses.mv_infonce,
    "MV-DHEL": losses.mv_dhel,
    "MV-CL1": losses.mv_cl1,
    "MV-CL2": losses.mv_cl2,
    "poly-view, geometric": partial(losses.poly_view, aggregation="geometric"),
    "poly-view, arithmetic": partial(losses.poly_view, aggregation="arithmetic"),
    "poly-view, harmonic": partial(losses.poly_view, aggregation="harmonic"),
    "sufficient statistics": losses.sufficient_statistics,
    "poly-SigLIP": losses.poly_siglip,
    "DSF, 3 against 3": losses.dsf,
    "InfoNCE, 3 x 3 pairs": losses.cross_pairs(losses.info_nce),
    "InfoNCE, means of 3": losses.mean_pair(losses.info_nce),
    "M3G": losses.m3g,
    "Symile": partial(losses.symile, negatives="shuffled"),
    "GRAM": losses.gram,
    "PMRL": losses.pmrl,
    "MMCR": losses.mmcr,
    "FroSSL": losses.frossl,
    "EMP-SSL": losses.emp_ssl,
    "LeJEPA": partial(losses.lejepa, slices=128),
    "VISReg": partial(losses.visreg, slices=256),
}
_GROUP = 16  # instances that M3G of six views compares
_IN_GROUPS = ("InfoNCE, all pairs", "MV-InfoNCE", "M3G pair, all pairs")
_UNEQUAL = f"""\
M3G of six views compares groups of {_GROUP} digits of a step's 256, since a pass takes n^6 operations; all others
compare 256. Three of them are there in groups of {_GROUP} too."""
_RAW, _UNTRAINED = "raw tables", "untrained encoders"
_ABOUT = """\
handwritten.mat: 2,000 digits of ten classes in six tables of 240, 76, 216, 47, 64 and 6 columns. Every fifth is a test
row; columns are standardised by the others. Each view has an encoder of one hidden layer of 128 units and a linear head
of 64, 120 steps of 256 digits (AdamW, learning rate 2e-3). Measured are the 64 numbers of the heads, which the
objectives compare; the untrained row is the same networks with their initial weights, the raw row the standardised
columns. SEM has autoencoders of one layer of 128 units, 128 features and 64 numbers, and 48 steps of reconstruction
before 72 of contrast.

**All views** side by side: k-NN on them is within about a point of its limit for raw tables, for untrained and for
trained networks: that column cannot separate objectives, and training on these objectives tends to lower the others of
all views. **One view** is the mean over the six views, each alone: what an encoder has learned from the other views
shows there. **Across views** the training rows are of one view and the test rows of another: only a common space tells
anything, 10 % is chance, and raw tables of different widths have none.

Labels are drawn three times, the same for all rows. Differences are to the untrained networks, paired by seed: a row
whose interval includes 0 is not told from them. No number is tuned for any row: another learning rate, temperature or
length of training may order the rows in another way."""


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """All objectives, with two baselines and SEM. `data` is handwritten.mat."""
    base = _config(sources.Tables(path=str(data), scaling=("standard",), held_out=True))
    objectives = {
        **_JOINT,
        **{f"{name}, all pairs": losses.all_pairs(pair) for name, pair in _PAIRS.items()},
        **{f"{name}, one against the rest": losses.one_vs_rest(pair) for name, pair in _PAIRS.items()},
    }
    objectives |= {f"{name}, groups of {_GROUP}": objectives[name] for name in _IN_GROUPS}
    pair = partial(losses.nt_xent, temperature=1.0)
    weighted = losses.all_pairs(pair, pairs="all", reduction="sum")
    sem = trained({"objective": "SEM"}, base, {"method": _SEM, "objective": weighted})
    return _study(base, objectives, sem, seeds=seeds, cost="24 minutes on 2 CPU cores")


def smoke(seeds: int = 2) -> Study:
    """Some steps on random tables of four views, one objective."""
    base = studies.changed(
        _config(sources.Synthetic(examples=200, view_shapes=((6,),) * 4)),
        {
            "encoder": models.MLP(widths=(8,)),
            "head": models.MLPHead(layers=1, out=4),
            "train.steps": 2,
            "train.batch_size": 16,
            "train.log_every": 1,
            "evaluation.draws": 1,
        },
    )
    return _study(base, {"MV-InfoNCE": losses.mv_infonce}, seeds=seeds, cost="seconds")


def _config(source: sources.Source) -> Config:
    return Config(
        data=source,
        encoder=models.MLP(widths=(128,)),
        head=models.MLPHead(layers=1, out=64),
        method=methods.MultiEncoder(),
        optimizer=AdamW(learning_rate=2e-3, weight_decay=1e-4),
        train=Train(steps=120, batch_size=256, evaluate_every=0, log_every=40, precision="float32"),
        checkpoint=Checkpoint(every_steps=1000, keep=1),
        evaluation=evaluation.SingleViews(features="head", baselines=False),
    )


_SEM = methods.Sem(
    pretrain_epochs=8, update_epochs=6, hidden=(128,), features=128, embedding=64, k_means_starts=3
)


def _group(name: str) -> int | None:
    return _GROUP if name == "M3G" or name.endswith(f"groups of {_GROUP}") else None


def _study(base: Config, objectives: Mapping[str, losses.Loss], *others: Cell, **scale: Any) -> Study:
    one = ("k-NN", "1 labels/class", "5 labels/class", "10 labels/class", "ACC", "NMI")
    names = (
        *(f"one view {name}" for name in one),
        "across views k-NN",
        *(f"all views {name}" for name in one),
    )
    return Study(
        title="Every objective on six real views of handwritten digits",
        about=_ABOUT,
        unequal=_UNEQUAL,
        cells=[
            Cell({"objective": _RAW}, Baseline(config=base, row="raw input")),
            Cell({"objective": _UNTRAINED}, Baseline(config=base, row="untrained encoder")),
            *(
                trained({"objective": name}, base, {"objective": objective, "train.group": _group(name)})
                for name, objective in objectives.items()
            ),
            *others,
        ],
        measures=[Measure(name, percent=True) for name in names],
        reference={"objective": _UNTRAINED},
        **scale,
    )
