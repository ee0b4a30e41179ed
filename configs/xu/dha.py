"""Xu 2023 (SEM), DHA: 2 views of 483 videos, 23 classes; 100 epochs of reconstruction, then 1 x 300 of SEM.

    # PATH: DHA.mat
    mvcl train configs/xu/dha.py --data.path PATH --workdir runs/dha

Section 4, the clustering table; the data are linked from the authors' repository (SubmissionsIn/SEM). As
released, nothing is scaled. A batch of 256 is one step an epoch here, where the released code takes the other
227 as a second; --train.batch-size 241 gives two. Its other cells:

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
        data=data.Tables(path="DHA.mat", scaling=("none",)),
        objective=methods.OBJECTIVES["all_pairs"](
            pairs="all", reduction="sum", pair=methods.PAIR_OBJECTIVES["nt_xent"](temperature=1.0)
        ),
        method=methods.Sem(update_epochs=300),
        optimizer=AdamW(learning_rate=3e-4, end_learning_rate=3e-4),
        train=Train(epochs=400, batch_size=256, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=200, keep=1),
        evaluation=evaluation.Clustering(features="head"),
    )
