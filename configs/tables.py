"""Tables of your own, such as .csv files: views are files or groups of columns, networks follow their widths.

    mvcl train tables --data.path my_folder --workdir runs/tables
    mvcl train tables --data.path all.csv --data.columns "blood=hb,wbc_*" "urine=ph" --data.missing mean

Hardware: 2 CPU cores.
Cost: depends on the tables; 1,000 rows take a minute.
Paper: none.
"""

import dataclasses

from mvcl import data, evaluation, losses, methods, models
from mvcl.training import AdamW, Config, Train


def get_config() -> Config:
    """MV-InfoNCE of an encoder for each view; K-means of their features against the classes, if there are any.

    Ours: no number is measured.
    """
    return Config(
        data=data.Tables(scaling=("standard",)),
        method=methods.MultiEncoder(),
        encoder=models.ByShape(),
        head=models.MLPHead(out=64, norm="batch"),
        objective=losses.mv_infonce,
        optimizer=AdamW(learning_rate=1e-3, weight_decay=1e-4),
        train=Train(epochs=100, batch_size=256, evaluate_every=0),
        evaluation=evaluation.Clustering(),
    )


def smoke() -> Config:
    """Some steps on random tables."""
    real = get_config()
    train = dataclasses.replace(real.train, steps=2, batch_size=16, log_every=1)
    return dataclasses.replace(real, data=data.Synthetic(view_shapes=((6,), (4,))), train=train)
