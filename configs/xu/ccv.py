"""Xu 2023 (SEM), CCV: 3 views of 6,773 videos, 20 classes; 100 epochs of reconstruction, then 4 x 50 of SEM.

    # PATH: a folder with MFCC.npy, STIP.npy, SIFT.npy, label.npy
    mvcl train configs/xu/ccv.py --data.path PATH --workdir runs/ccv

Section 4, the clustering table; the data are linked from the authors' repository (SubmissionsIn/SEM). As
released, only STIP is scaled; views are in the order of file names: MFCC, SIFT, STIP. Its other cells:

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
        data=data.Tables(path="CCV", scaling=("none", "none", "minmax")),
        objective=methods.OBJECTIVES["all_pairs"](
            pairs="all", reduction="sum", pair=methods.PAIR_OBJECTIVES["nt_xent"](temperature=1.0)
        ),
        method=methods.Sem(update_epochs=50),
        optimizer=AdamW(learning_rate=3e-4, end_learning_rate=3e-4),
        train=Train(epochs=300, batch_size=256, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=2000, keep=1),
        evaluation=evaluation.Clustering(features="head"),
    )
