"""Shidani 2024, Figure 2 and Appendix E.5: the 1-D Gaussian study, whole.

    mvcl train configs/shidani/gaussian.py --workdir runs/gaussian

Section 3.1 and its appendix: an MLP 1-32-32 with GELU, AdamW at 5e-4 with weight decay 5e-3, K = 1024 instances a
batch, M in {2, 4, 8, 10} views, 200 epochs, 16 networks side by side in each of the 16 runs. The second part holds
B = M K = 64 fixed, down to K = 2 instances, 20 more runs, against Eqs. 154 and 155. Writes gaussian.md (tables, the
bounds as printed and one that holds, whether the gaps fall with M, the best M), gaussian.svg (the four panels) and
gaussian.json, beside the folders of the runs; docs/gaussian.md shows those of 8 seeds, which took 55
minutes on 2 busy CPU cores. The same command again continues what was interrupted.
"""

import dataclasses

from mvcl import models
from mvcl.studies import Gaussian


def get_config() -> Gaussian:
    """The study."""
    return Gaussian(
        objectives=("geometric", "arithmetic", "sufficient_statistics", "multi_crop"),
        views=(2, 4, 8, 10),
        instances=1024,
        batch=64,
        batch_views=(2, 4, 8, 16, 32),
        epochs=200,
        seeds=16,
        encoder=models.MLP(widths=(32, 32), activation="gelu"),
        learning_rate=5e-4,
        weight_decay=5e-3,
    )


def smoke() -> Gaussian:
    """Some steps of every part."""
    return dataclasses.replace(
        get_config(),
        views=(2, 3),
        instances=16,
        batch=8,
        batch_views=(2, 4),
        epochs=1,
        seeds=2,
        evaluation_batches=1,
    )
