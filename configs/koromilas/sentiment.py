"""Koromilas 2025, sentiment from text, audio and vision: a transformer for each, MV-DHEL over the three.

    mvcl data prepare sentiment --source MOSEI                            # once; see docs/data.md
    mvcl train configs/koromilas/sentiment.py --workdir runs/mosei
    mvcl data prepare sentiment --source CHSIMS --dataset chsims          # once
    mvcl train configs/koromilas/sentiment.py:chsims --workdir runs/chsims

Table IV: sentiment regression from the frozen encoders, late fusion. Its other rows and settings:

    --optimizer.learning-rate 1e-4                                of {1e-5, 5e-5, 1e-4}
    objective:mv_infonce                                          MV-InfoNCE
    objective:all_pairs objective.pair:nt_xent                    pwe, pairwise
    method:supervised --evaluation.features head                  trained on the labels, ridge on its output

Hardware: one GPU; see the variants.
Ours: not run.
"""

import dataclasses
from functools import partial

from mvcl import data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def mosei() -> Config:
    """CMU-MOSEI.

    Cost: 21.1 PFLOP; a step holds 36.5 GB of temporaries in float32 (docs/recipes.md).
    Paper (Table IV): MV-DHEL accuracy 79.6 %, MAE 0.668; best baseline 75.7 % and 0.707; supervised 82.9 % and 0.587.
    """
    return Config(
        data=data.Sentiment(dataset="mosei"),
        views=Views(k=3),
        encoder=models.Transformer(),
        head=models.koromilas_head(),
        objective=partial(losses.mv_dhel, temperature=0.5),
        method=methods.MultiEncoder(),
        optimizer=AdamW(learning_rate=5e-5, weight_decay=1e-4),
        train=Train(epochs=200, batch_size=256, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=500),
        evaluation=evaluation.Regression(),
    )


def chsims() -> Config:
    """CH-SIMS, with the settings of CMU-MOSEI.

    Cost: 0.707 PFLOP; a step holds 14.6 GB of temporaries in float32 (docs/recipes.md).
    Paper (Table IV): MV-DHEL accuracy 79.4 %, MAE 0.392; best baseline 76.3 % and 0.448; supervised 83.2 % and 0.354.
    """
    return dataclasses.replace(mosei(), data=data.Sentiment(dataset="chsims"))


get_config = mosei


def smoke() -> Config:
    """Some steps of small transformers on random sequences, some of them missing."""
    real = get_config()
    return dataclasses.replace(
        real,
        data=data.Synthetic(
            regression=True, view_shapes=((5, 8), (7, 6), (6, 4)), padded=True, missing=0.2, groups=4
        ),
        encoder=models.Transformer(width=8, depth=1, heads=2),
        train=dataclasses.replace(real.train, steps=4, batch_size=16, log_every=1),
    )
