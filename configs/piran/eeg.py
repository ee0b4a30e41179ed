"""Piran 2024, sleep stages from EEG: one encoder shared by k = 6 channels, M3G on 16 windows, 10 epochs.

    mvcl data prepare eeg --source PHYSIONET2018        # once; see docs/data.md
    mvcl train configs/piran/eeg.py --workdir runs/eeg

Section 5.3, the table of few-label probes: pre-training on PhysioNet 2018, then 10, 50, 100 and 1000 labels a class.
Its other cells:

    objective:all_pairs objective.pair:info_nce --train.batch-size 64    pairwise InfoNCE
    objective:one_vs_rest objective.pair:info_nce --train.batch-size 64  one against the average of the rest
    objective:all_pairs objective.pair:byol                              pairwise BYOL
    --data.transfer SLEEPEDFX --evaluation.of transfer                   probes on SleepEDFx, as prepared
"""

from mvcl import data, evaluation, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.SOURCES["eeg"](),
        views=Views(k=6),
        encoder=models.ENCODERS["eeg"](),
        head=models.MLPHead(hidden=256, out=64, activation="gelu"),
        objective=methods.OBJECTIVES["m3g"](epsilon=0.2, scope="device"),
        optimizer=AdamW(learning_rate=1e-3, b1=0.9, b2=0.99, weight_decay=1e-4),
        train=Train(epochs=10, batch_size=16, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(labels_per_class=(10, 50, 100, 1000)),
    )
