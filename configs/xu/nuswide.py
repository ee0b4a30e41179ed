"""Xu 2023 (SEM), NUS-WIDE: 5 views of 5,000 images, 5 classes; 100 epochs of reconstruction, then 4 x 25 of SEM.

    # PATH: NUSWIDE.mat
    mvcl train configs/xu/nuswide.py --data.path PATH --workdir runs/nuswide

Section 4, the clustering table; the data are linked from the authors' repository (SubmissionsIn/SEM). As
released, nothing is scaled and the last column of each view is left out. Its other cells:

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
        data=data.Tables(path="NUSWIDE.mat", scaling=("none",), skip_last=1),
        objective=methods.OBJECTIVES["all_pairs"](
            pairs="all", reduction="sum", pair=methods.PAIR_OBJECTIVES["nt_xent"](temperature=1.0)
        ),
        method=methods.Sem(update_epochs=25),
        optimizer=AdamW(learning_rate=3e-4, end_learning_rate=3e-4),
        train=Train(epochs=200, batch_size=256, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=2000, keep=1),
        evaluation=evaluation.Clustering(features="head"),
    )
