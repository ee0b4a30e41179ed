"""Shidani 2024, the 1-D Gaussian model of Section 3.1: 16 networks, geometric poly-view loss, M = 8.

    mvcl train shidani/gaussian --workdir runs/gaussian       # one point of Figure 2
    mvcl study shidani_figure2                                           # all of Figure 2
    mvcl study shidani_fixed_batch                                       # Appendix E.5: the best M at a fixed batch

An MLP 1-32-32 with GELU, AdamW at 5e-4 with weight decay 5e-3, K = 1024 instances a batch, 200 epochs. The studies have
the other objectives and M: `mvcl.studies.gaussian` makes their configs, in which the objective, the data and the bound
of the evaluation belong together. Deviations of the model, temperature, and 3 batches an epoch are ours.

Hardware: 2 CPU cores.
Cost: 4 minutes.
Paper: Figure 2, without numbers.
Ours: docs/studies.
"""

from mvcl import studies
from mvcl.training import Config


def get_config() -> Config:
    """M = 8 views."""
    return studies.gaussian("geometric", 8)


def smoke() -> Config:
    """Two networks, some steps with small batches."""
    return studies.gaussian("geometric", 8, 16, networks=2, epochs=2, evaluation_batches=1)
