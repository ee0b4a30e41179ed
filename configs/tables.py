"""Tables of your own, such as .csv files: views are files or groups of columns, networks follow their widths.

    mvcl train tables --data.path all.csv --data.columns "blood=hb,wbc_*" "urine=ph"

Hardware: 2 CPU cores.
Cost: depends on the tables; `--dry-run` estimates a step.
Paper: none.
Ours: no number is measured.
"""

import dataclasses

from mvcl import data, evaluation, methods, models
from mvcl.training import Config, Train


def get_config() -> Config:
    """MV-InfoNCE of an encoder for each view; clusters of their features."""
    return Config(
        data=data.Tables(scaling=("standard",)),
        method=methods.MultiEncoder(),
        encoder=models.ByShape(),
        train=Train(epochs=100, evaluate_every=0),
        evaluation=evaluation.Clustering(),
    )


def smoke() -> Config:
    """Some steps on random tables."""
    train, tables = Train(steps=2, batch_size=16, log_every=1), data.Synthetic(view_shapes=((6,), (4,)))
    return dataclasses.replace(get_config(), data=tables, train=train)
