"""Shidani 2024, Figure 2: the 1-D Gaussian study, whole; some minutes on 2 CPU cores.

    mvcl train configs/shidani/gaussian.py --workdir runs/gaussian

Section 3.1 and its appendix: an MLP 1-32-32 with GELU, AdamW at 5e-4 with weight decay 5e-3, K = 1024 instances a
batch, M in {2, 4, 8, 10} views, 200 epochs, 16 seeds trained together. Writes gaussian.md (tables, and whether the gaps
fall with M), gaussian.svg (the four panels) and gaussian.json. docs/gaussian.md shows what came out.
"""

from mvcl import models
from mvcl.studies import Gaussian


def get_config() -> Gaussian:
    """The study."""
    return Gaussian(
        objectives=("geometric", "arithmetic", "sufficient_statistics", "multi_crop"),
        views=(2, 4, 8, 10),
        instances=1024,
        epochs=200,
        seeds=16,
        encoder=models.MLP(widths=(32, 32), activation="gelu"),
        learning_rate=5e-4,
        weight_decay=5e-3,
    )
