"""The digits by six descriptions, offline: SEM in a small size, 100 epochs of reconstruction, then 2 x 50.

    mvcl train configs/xu/digits_views.py --workdir runs/digits_views

Under 2 minutes on 2 quiet CPU cores. --data.noise adds a seventh view, of noise: its weights fall, and
without weights (--method.weights none --method.lam 0) it drags the others down. Not from a paper.
"""

from mvcl import data, evaluation, methods
from mvcl.training import AdamW, Checkpoint, Config, Train


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.DigitsViews(),
        objective=methods.OBJECTIVES["all_pairs"](
            pairs="all", reduction="sum", pair=methods.PAIR_OBJECTIVES["nt_xent"](temperature=1.0)
        ),
        method=methods.Sem(
            update_epochs=50, watch_epochs=10, hidden=(256, 256, 512), features=128, embedding=64
        ),
        optimizer=AdamW(learning_rate=3e-4, end_learning_rate=3e-4),
        train=Train(epochs=200, batch_size=256, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=500, keep=1),
        evaluation=evaluation.Clustering(features="head"),
    )
