"""Piran 2024, sleep stages from EEG: one encoder shared by k = 6 channels, M3G on 16 windows, 10 epochs.

    mvcl data prepare eeg --source PHYSIONET2018        # once; see docs/data.md
    mvcl train configs/piran/eeg.py --workdir runs/eeg

Section 4.3, the table of few-label probes: pre-training on PhysioNet 2018, then 10, 50, 100 and 1000 labels a class.
Its other cells:

    objective:all_pairs objective.pair:info_nce --train.batch-size 64      pairwise InfoNCE
    objective:one_vs_rest objective.pair:info_nce --train.batch-size 64    one against the average of the rest
    objective:all_pairs objective.pair:byol                                pairwise BYOL
    --data.transfer SLEEPEDFX --evaluation.of transfer                     probes on SleepEDFx, as prepared

Hardware: one GPU; a step holds 1.4 GB of temporaries in float32 (docs/recipes.md).
Cost: 35.1 PFLOP; not timed here.
Paper (Table 3, SleepEDFx, 10, 50, 100 and 1000 labels a class): M3G 36.6, 49.2, 56.1 and 64.6 %; InfoNCE 35.5, 49.3,
52.2 and 56.3 %.
Ours: not run.
"""

import dataclasses
from functools import partial

from mvcl import data, evaluation, losses, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def get_config() -> Config:
    """PhysioNet 2018."""
    return Config(
        data=data.Eeg(),
        views=Views(k=6),
        encoder=models.EegConv(),
        head=models.MLPHead(hidden=256, out=64, activation="gelu"),
        objective=partial(losses.m3g, epsilon=0.2),
        optimizer=AdamW(learning_rate=1e-3, b1=0.9, b2=0.99, weight_decay=1e-4),
        train=Train(epochs=10, batch_size=16, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(labels_per_class=(10, 50, 100, 1000)),
    )


def smoke() -> Config:
    """Some steps of a narrow network on random windows of 10 seconds."""
    real = get_config()
    return dataclasses.replace(
        real,
        data=data.Synthetic(view_shapes=((1000,),) * 6, classes=5, groups=4),
        encoder=models.EegConv(channels=8, out=4),
        head=models.MLPHead(hidden=8, out=8, activation="gelu"),
        train=dataclasses.replace(real.train, steps=4, batch_size=8, log_every=1),
        evaluation=evaluation.Classification(labels_per_class=(2, 5)),
    )
