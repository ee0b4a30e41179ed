"""Handwritten numerals (UCI mfeat), 6 views of 2,000 digits: SEM, 100 epochs of reconstruction, then 2 x 50.

    mvcl train configs/xu/handwritten.py --data.path handwritten.mat --workdir runs/handwritten

Not from Xu 2023: a data set that is small and free. 5 minutes on 2 quiet CPU cores. docs/sem.md has what it
gave, with the other cells:

    objective.pair:spectral                  PSCL in place of InfoNCE, which as released is nt_xent at temperature 1.0
    objective.pair:rince                     RINCE
    --method.weights jsd                     other weights of the pairs: mmd, or none
    --method.reconstruction dae              denoising autoencoder; mae: masked
    --method.lam 0 --method.weights none     InfoNCE without W and R; --objective.pairs ordered leaves out l = m too

"""

from mvcl import data, evaluation, methods
from mvcl.training import AdamW, Checkpoint, Config, Train


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.Tables(path="handwritten.mat"),
        objective=methods.OBJECTIVES["all_pairs"](
            pairs="all", reduction="sum", pair=methods.PAIR_OBJECTIVES["nt_xent"](temperature=1.0)
        ),
        method=methods.Sem(update_epochs=50, watch_epochs=10),
        optimizer=AdamW(learning_rate=3e-4, end_learning_rate=3e-4),
        train=Train(epochs=200, batch_size=256, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=500, keep=1),
        evaluation=evaluation.Clustering(features="head"),
    )
