"""Koromilas 2025, sentiment from text, audio and vision: a transformer for each, MV-DHEL over the three.

    mvcl data prepare sentiment --labels labels.csv --text BERT --audio HUBERT --vision CLIP
    mvcl train koromilas/sentiment --seeds 3 --workdir runs/mosei
    mvcl train koromilas/sentiment:chsims --seeds 3 --workdir runs/chsims

The first command is needed once for each data set, for CH-SIMS with --dataset chsims: BERT, HUBERT and CLIP are folders
of features (docs/how_to/data.md).

Table IV and, on CH-SIMS, Table VII: a linear layer on the concatenated features of the frozen encoders, the mean of 3
runs with 3 layers each (appendix E). The study `koromilas_table4` has all
cells. Rows and settings:

    --optimizer.learning-rate 1e-4                                of {1e-5, 5e-5, 1e-4}, chosen for each objective
    objective:mv_infonce --objective.negatives all                MV-InfoNCE as the authors' code computes it
    objective:all_pairs objective.pair:nt_xent                    PWE, pairwise
    objective:one_vs_rest objective.pair:nt_xent                  AVG
    objective:poly_view --objective.temperature 0.5               PVC
    objective:mv_cl1                                              MV-CL1, Eq. 19 (Table VII)
    objective:mv_cl2 --objective.energy sum                       MV-CL2, Eq. 20, as the code computes it (Table VII)
    method:supervised evaluation:predictions --train.epochs 100   Supervised: all trained on the MAE, from scratch

From the paper: features of BERT, HuBERT and CLIP-ViT as in MERBench. Ours: which models and lengths of sequences, and
that the row Supervised has the settings of the others. The authors' code has no sentiment part. The
paper's accuracy is one of "accuracy positive" (MERBench's) and "accuracy above zero" (MMSA's for CH-SIMS); it does not
say which. Without --objective.negatives all, MV-InfoNCE has the negatives of MV-CL1, as appendix F says.

Hardware: one GPU; see the variants.
Ours: not run.
"""

import dataclasses
from functools import partial

from mvcl import data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def mosei() -> Config:
    """CMU-MOSEI.

    Cost: 16.5 PFLOP a run; a step holds 26.7 GB of temporaries in float32 (docs/how_to/recipes.md).
    Paper (Table IV), accuracy and MAE: MV-DHEL 79.6 %, 0.668; MV-InfoNCE 76.8 %, 0.708; PWE 75.4 %, 0.707; AVG 75.7 %,
    0.713; PVC 74.3 %, 0.755; supervised 82.9 %, 0.587.
    """
    return Config(
        data=data.Sentiment(  # paper, V-B
            dataset="mosei",  # paper, V-B
            standardize=True,  # ours
        ),
        views=Views(
            k=3,  # paper, V-B
            strategy="growing",  # ours
        ),
        encoder=models.Transformer(  # paper, E
            width=128,  # ours
            depth=3,  # paper, E
            heads=4,  # ours
            dropout=0.1,  # ours
        ),
        head=models.koromilas_head(),  # ours: the head of the paper's images
        objective=partial(  # paper, Table IV
            losses.mv_dhel,
            temperature=0.5,  # ours
            energy_weight=1.0,  # paper, Eq. 12
        ),
        method=methods.MultiEncoder(  # paper, E
            encoders=()  # paper, E: the same for each modality
        ),
        optimizer=AdamW(  # paper, E
            learning_rate=5e-5,  # ours: the middle of the paper's {1e-5, 5e-5, 1e-4}, E
            end_learning_rate=0.0,  # paper, E: cosine decay
            reference_batch=None,  # ours
            b1=0.9,  # ours: PyTorch's
            b2=0.999,  # ours: PyTorch's
            eps=1e-8,  # ours: PyTorch's
            weight_decay=1e-4,  # ours
            decays="matrices",  # ours
            warmup_epochs=0.0,  # ours
            warmup_share=0.0,  # ours
        ),
        train=Train(
            epochs=200,  # paper, E
            batch_size=256,  # ours
            precision="float32",  # ours
            evaluate_every=0,
        ),
        checkpoint=Checkpoint(every_steps=500),
        evaluation=evaluation.Regression(  # paper, E
            features="encoder",  # paper, E
            probe=evaluation.MaeProbe(  # paper, E
                learning_rates=(1e-4, 1e-3, 1e-2),  # ours: the least MAE of the validation split chooses
                layers=3,  # paper, E
                epochs=100,  # paper, E
                batch_size=256,  # ours
                weight_decay=0.01,  # ours
                decay="cosine",  # ours
            ),
        ),
    )


def chsims() -> Config:
    """CH-SIMS, with the settings of CMU-MOSEI.

    Cost: 0.57 PFLOP a run; a step holds 10.8 GB of temporaries in float32 (docs/how_to/recipes.md).
    Paper (Table IV), accuracy and MAE: MV-DHEL 79.4 %, 0.392; MV-InfoNCE 76.6 %, 0.421; PWE 76.1 %, 0.448; AVG 76.3 %,
    0.468; PVC 68.1 %, 0.563; supervised 83.2 %, 0.354. Table VII: MV-CL1 75.19 %, 0.434; MV-CL2 79.08 %, 0.394.
    """
    return dataclasses.replace(
        mosei(),
        data=data.Sentiment(  # paper, V-B
            dataset="chsims",  # paper, V-B
            standardize=True,  # ours
        ),
    )


get_config = mosei


def smoke() -> Config:
    """Some steps of small transformers on random sequences, some of them missing; three layers on their features."""
    real = get_config()
    return dataclasses.replace(
        real,
        data=data.Synthetic(
            regression=True, view_shapes=((5, 8), (7, 6), (6, 4)), padded=True, missing=0.2, groups=4
        ),
        encoder=models.Transformer(width=8, depth=1, heads=2),
        train=dataclasses.replace(real.train, steps=4, batch_size=16, log_every=1),
    )
