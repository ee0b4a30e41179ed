"""Xu 2023 (SEM), Caltech: 6 views of 1,400 images, 7 classes; 100 epochs of reconstruction, then 4 x 100 of SEM.

    # PATH: Caltech.mat
    mvcl train configs/xu/caltech.py --data.path PATH --workdir runs/caltech

Section 4, the clustering table; the data are linked from the authors' repository (SubmissionsIn/SEM). As
released, every column is scaled to [0, 1]. Its other cells:

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
        data=data.Tables(path="Caltech.mat"),
        objective=methods.OBJECTIVES["all_pairs"](
            pairs="all", reduction="sum", pair=methods.PAIR_OBJECTIVES["nt_xent"](temperature=1.0)
        ),
        method=methods.Sem(update_epochs=100),
        optimizer=AdamW(learning_rate=3e-4, end_learning_rate=3e-4),
        train=Train(epochs=500, batch_size=256, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=2000, keep=1),
        evaluation=evaluation.Clustering(features="head"),
    )
