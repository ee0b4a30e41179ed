"""Shidani 2024, the 1-D Gaussian model of Section 3.1: 16 networks, geometric poly-view loss, M = 8.

    mvcl train shidani/gaussian --workdir runs/gaussian       # one point of Figure 2
    mvcl study shidani_figure2 --scale paper                  # all of Figure 2
    mvcl study shidani_fixed_batch --scale paper              # Appendix E.5: the best M at a fixed batch

The studies have the other objectives and M. `configs/studies/_gaussian.py` makes their configs: objective, data and
the bound of the evaluation belong together there.

Hardware: 2 CPU cores.
Cost: 30 minutes, estimated.
Paper: Figure 2, without numbers.
Ours: docs/studies/shidani_figure2_small.md, with fewer updates, by `mvcl study shidani_figure2 --scale small`.
"""

import _gaussian  # of the studies

from mvcl.training import Config


def get_config() -> Config:
    """M = 8 views."""
    return _gaussian.gaussian(  # paper, 3.1
        name="geometric",  # paper, 3.1
        views=8,  # paper, 3.1
        instances=1024,  # paper, 3.1
        networks=16,  # paper, 3.1: runs
        epochs=200,  # paper, 3.1
        steps_per_epoch=20,  # ours: with it the loss is flat at the end
        signal=1.0,  # ours
        noise=0.5,  # ours
        temperature=0.1,  # ours
        grid=64,  # ours
        learning_rate=5e-4,  # paper, 3.1
        end_learning_rate=0.0,  # ours: cosine decay
        weight_decay=5e-3,  # paper, 3.1; of all parameters, as PyTorch's AdamW: ours
    )


def smoke() -> Config:
    """Two networks, some steps with small batches."""
    return _gaussian.gaussian("geometric", 8, 16, networks=2, epochs=2, steps_per_epoch=3)
