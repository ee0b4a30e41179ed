"""Your tables: SEM on a folder with one .csv or .parquet file a view, a .mat or an .npz file.

    mvcl train configs/xu/tables.py --data.path FOLDER --workdir runs/tables
    mvcl report runs/tables

Files share a column `id`; an id that a file lacks is an example that lacks the view. Labels, if there are any,
are a column `label` of one file or a file labels.csv. Without labels say how many clusters you want:
--method.clusters 8. The run folder then has clusters.csv (a cluster for each id), refresh.jsonl (the weights of
the pairs of views over time), scaling.json (for new data: --data.scaling-file) and report.html.
"""

from mvcl import data, evaluation, methods
from mvcl.training import AdamW, Checkpoint, Config, Train


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.Tables(),
        objective=methods.OBJECTIVES["all_pairs"](
            pairs="all", reduction="sum", pair=methods.PAIR_OBJECTIVES["nt_xent"](temperature=1.0)
        ),
        method=methods.Sem(update_epochs=50, watch_epochs=10),
        optimizer=AdamW(learning_rate=3e-4, end_learning_rate=3e-4),
        train=Train(epochs=200, batch_size=256, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=500, keep=1),
        evaluation=evaluation.Clustering(features="head"),
    )
