"""Xu 2023 (SEM): tables that describe the same examples, 100 epochs of reconstruction, then rounds of weighted pairs.

    mvcl train xu/sem --data.path handwritten.mat --workdir runs/handwritten
    mvcl train xu/sem --data.path handwritten.mat --method.paper --workdir runs/paper
    mvcl train xu/sem:digits_views --workdir runs/digits_views          # offline
    mvcl train xu/sem:tables --data.path FOLDER --workdir runs/tables   # your own tables
    mvcl train xu/sem:caltech --data.path Caltech.mat --workdir runs/caltech

dha, ccv, nuswide, caltech and youtubevideo are the clustering table of Section 4 (Table 2); the data are linked from
the authors' repository (SubmissionsIn/SEM). All train as its code does, with its optimiser, last batch, biases and
K-means starts; these five have its schedules, scaling and the one K-means of its evaluation too. A run is one
training; the paper's means are over 10, --seeds 10. Table 2's other cells, and Tables 3 and 4:

    objective.pair:spectral                  PSCL in place of InfoNCE, which as released is nt_xent at temperature 1.0
    objective.pair:rince                     RINCE
    --method.weights jsd                     other weights of the pairs: mmd, or none
    --method.reconstruction dae              denoising autoencoder; mae: masked
    --method.lam 0 --method.weights none --objective.pairs ordered
                                             InfoNCE without W and R, of different views, after the same 100 epochs of
                                             reconstruction
    --method.pretrain-epochs 0               no pre-training; take its epochs off --train.epochs
    --method.clusters 40                     other numbers of clusters than classes (Fig. 6b); --method.lam: Fig. 6a

CMC's memory bank of negatives is not here; its sum over pairs m < n with the negatives of a batch is

    mvcl train xu/sem:dha --data.path DHA.mat objective:all_pairs --objective.pairs unordered \
      --objective.reduction sum objective.pair:info_nce --objective.pair.temperature 0.07 --objective.pair.symmetric \
      --method.lam 0 --method.weights none --workdir runs/cmc

DCP, MFLVC and DSIMVC are not implemented. Precision is float32 on every device; a GPU's bfloat16 or TF32 would be
another computation.

Hardware: 2 CPU cores. Times marked * are not measured: they are the FLOPs of docs/how_to/recipes.md at 45 GFLOP in
0.19 s, an earlier speed of handwritten, without the K-means.
Tables and figures with their claims are studies: `mvcl study xu_table2 --data DIR`, xu_table3 and xu_figure2.
Ours: none of the paper's five sets was run; small scales are published.
"""

import dataclasses
from functools import partial

from mvcl import data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views

_TABLES = data.Tables(  # released, dataloader.py
    views=(),  # released, dataloader.py: all
    scaling=("none",),  # released, dataloader.py; but for those that say so
    labels="",  # ours: found by their usual names
    skip_last=0,  # released, dataloader.py
    held_out=False,  # released, dataloader.py: clusters are of all examples
)
_CLUSTERING = evaluation.Clustering(  # paper, Table 2
    features="head",  # paper, 4.1
    clusters=0,  # paper, 4.1: the number of classes
    runs=1,  # released, train.py
    starts=100,  # released, metric.py
    mini_batch_above=10_000,  # released, metric.py
    svm_share=0.3,  # paper, 4.1
    draws=10,  # released, test.py
)


def _sem(source: data.Source, method: methods.Sem, *, rounds: int, every_steps: int = 2000) -> Config:
    """SEM with so many rounds of `method.update_epochs` after its `method.pretrain_epochs`."""
    return Config(
        data=source,
        views=Views(strategy="growing"),  # released, train.py: a batch counts examples
        head=models.IdentityHead(),  # ours: not used, the method has its own networks
        objective=losses.all_pairs(  # paper, Eq. 2
            pair=partial(losses.nt_xent, temperature=1.0),  # released, loss.py
            pairs="all",  # released, train.py; the paper does not say whether m = n is a pair
            reduction="sum",  # paper, Eq. 2
        ),
        method=method,
        optimizer=AdamW(  # paper, Algorithm 1: Adam
            learning_rate=3e-4,  # released, train.py
            end_learning_rate=3e-4,  # released, train.py: constant
            reference_batch=None,  # released, train.py
            warmup_epochs=0.0,  # released, train.py: constant
            warmup_share=0.0,  # released, train.py: constant
            b1=0.9,  # released, train.py: PyTorch's
            b2=0.999,  # released, train.py: PyTorch's
            eps=1e-8,  # released, train.py: PyTorch's
            weight_decay=0.0,  # released, train.py
        ),
        train=Train(
            epochs=method.pretrain_epochs + rounds * method.update_epochs,
            batch_size=256,  # released, train.py
            precision="float32",  # released, train.py
            evaluate_every=0,
        ),
        checkpoint=Checkpoint(every_steps=every_steps, keep=1),
        evaluation=_CLUSTERING,
    )


def _method(update_epochs: int, *, watch_epochs: int) -> methods.Sem:
    """The released code's networks and training, with rounds of so many epochs; `watch_epochs` are ours."""
    return methods.Sem(  # paper, 3.2
        restart_optimizer=True,  # released, train.py
        last_batch=True,  # released, train.py: the loader keeps it
        uniform_biases=True,  # released, network.py: PyTorch's Linear
        k_means_starts=100,  # released, metric.py
        hidden=(500, 500, 2000),  # released, network.py
        features=512,  # released, network.py
        embedding=128,  # released, network.py
        lam=1.0,  # paper, Eq. 2
        weights="cmi",  # paper, Eq. 7
        clusters=0,  # paper, 3.3: the number of classes
        mini_batch_above=10_000,  # released, metric.py
        reconstruction="ae",  # paper, Eq. 8
        pretrain_epochs=100,  # released, train.py
        update_epochs=update_epochs,
        watch_epochs=watch_epochs,
    )


def _several(config: Config) -> Config:
    """The config with several runs of K-means in its evaluation, whose deviation one training can show."""
    clustering = dataclasses.replace(_CLUSTERING, runs=10, starts=10)  # ours
    return dataclasses.replace(config, evaluation=clustering)


def handwritten() -> Config:
    """Handwritten numerals (UCI mfeat), 6 views of 2,000 digits: 2 rounds of 50 epochs.

    Not from Xu 2023: a data set that is small and free.
    Cost: 15 minutes; 0.072 PFLOP.
    The released code (3 seeds, docs/how_to/sem.md): ACC 82.6 ± 0.3 %, NMI 82.3 ± 0.4 %, and after round 1 85.3 ± 1.1 %,
    86.9 ± 0.3 %. `mvcl study control_sem_training --scale paper --data handwritten.mat` trains its parts.
    """
    path = "handwritten.mat"  # released, dataloader.py
    source = dataclasses.replace(_TABLES, path=path, scaling=("minmax",))  # released, dataloader.py
    return dataclasses.replace(tables(), data=source)


def tables() -> Config:
    """Your tables: a folder with one .csv or .parquet file a view, a .mat or an .npz file; 2 rounds of 50 epochs.

    Files share a column `id`; an id that a file lacks is an example that lacks the view. Labels, if there are any,
    are a column `label` of one file or a file labels.csv. Without labels say how many clusters you want:
    --method.clusters 8. The run folder then has clusters.csv (a cluster for each id), refresh.jsonl (the weights of
    the pairs of views over time) and report.html; `mvcl embed RUN --data.path NEW` clusters new rows.
    """
    source = dataclasses.replace(_TABLES, scaling=("minmax",))  # released, dataloader.py
    method = _method(50, watch_epochs=10)  # ours
    return _several(_sem(source, method, rounds=2, every_steps=500))  # ours


def digits_views() -> Config:
    """scikit-learn's digits by six descriptions, offline: smaller networks, 2 rounds of 50 epochs.

    --data.noise adds a seventh view, of noise: its weights fall, and without weights (--method.weights none
    --method.lam 0) its own accuracy rises. Not from a paper.
    Cost: 1 minute*; 0.009 PFLOP.
    """
    method = dataclasses.replace(
        _method(50, watch_epochs=10),  # ours
        hidden=(256, 256, 512),  # ours
        features=128,  # ours
        embedding=64,  # ours
    )
    source = data.DigitsViews(views=(), noise=False, scaling=("minmax",), held_out=False)  # ours
    return _several(_sem(source, method, rounds=2, every_steps=500))  # ours


def dha() -> Config:
    """DHA, 2 views of 483 videos, 23 classes: 1 round of 300 epochs. PATH is DHA.mat.

    Nothing is scaled. An epoch has two steps, of 256 and 227 videos.
    Cost: 2 minutes*; 0.018 PFLOP.
    Paper: ACC 80.9 ± 1.9 %, NMI 84.1 ± 0.9 %.
    """
    source = dataclasses.replace(_TABLES, path="DHA.mat")  # released, dataloader.py
    method = _method(300, watch_epochs=50)  # released, train.py; watch_epochs: ours
    return _sem(source, method, rounds=1, every_steps=200)  # released, train.py


def ccv() -> Config:
    """CCV, 3 views of 6,773 videos, 20 classes: 4 rounds of 50 epochs.

    PATH is a folder with STIP.npy, SIFT.npy, MFCC.npy, label.npy. Views are in that order, the released code's; only
    STIP is scaled.
    Cost: 23 minutes*; 0.325 PFLOP.
    Paper: ACC 39.4 ± 0.7 %, NMI 35.5 ± 0.4 %.
    """
    source = dataclasses.replace(  # paper, Table 1
        _TABLES,
        path="CCV",  # released
        views=("STIP", "SIFT", "MFCC"),  # released, dataloader.py
        scaling=("minmax", "none", "none"),  # released, dataloader.py
    )
    return _sem(source, _method(50, watch_epochs=25), rounds=4)  # released, train.py; watch_epochs: ours


def nuswide() -> Config:
    """NUS-WIDE, 5 views of 5,000 images, 5 classes: 4 rounds of 25 epochs. PATH is NUSWIDE.mat.

    Nothing is scaled and the last column of each view is left out.
    Cost: 11 minutes*; 0.151 PFLOP.
    Paper: ACC 60.4 ± 0.4 %, NMI 34.9 ± 0.7 %.
    """
    source = dataclasses.replace(_TABLES, path="NUSWIDE.mat", skip_last=1)  # released, dataloader.py
    return _sem(source, _method(25, watch_epochs=25), rounds=4)  # released, train.py; watch_epochs: ours


def caltech() -> Config:
    """Caltech, 6 views of 1,400 images, 7 classes: 4 rounds of 100 epochs. PATH is Caltech.mat.

    Every column is scaled to [0, 1]. The released code sets 4 rounds and then 3, which is what runs there:
    `caltech_released`.
    Cost: 10 minutes*; 0.148 PFLOP.
    Paper: ACC 87.2 ± 0.3 %, NMI 80.3 ± 0.5 %.
    """
    source = dataclasses.replace(_TABLES, path="Caltech.mat", scaling=("minmax",))  # released, dataloader.py
    method = _method(100, watch_epochs=20)  # paper, 4.3; watch_epochs: ours
    return _sem(source, method, rounds=4)  # paper, 4.3: updated 4 times


def caltech_released() -> Config:
    """Caltech with the 3 rounds that the released code runs. Cost: 9 minutes*; 0.118 PFLOP."""
    config = caltech()
    train = dataclasses.replace(config.train, epochs=400)  # released, train.py: 100, and 3 rounds of 100
    return dataclasses.replace(config, train=train)


def youtubevideo() -> Config:
    """YouTubeVideo, 3 views of 101,499 videos, 31 classes: 1 round of 25 epochs. PATH is Video-3V.mat.

    Nothing is scaled. K-means takes mini-batches and there is no SVM, as in the released code.
    Cost: 1.4 hours*; 1.21 PFLOP.
    Paper: ACC 31.3 ± 1.1 %, NMI 31.1 ± 0.9 %.
    """
    source = dataclasses.replace(_TABLES, path="Video-3V.mat")  # released, dataloader.py
    real = _sem(source, _method(25, watch_epochs=25), rounds=1)  # released, train.py; watch_epochs: ours
    clustering = dataclasses.replace(_CLUSTERING, svm_share=0)  # released, test.py
    return dataclasses.replace(real, evaluation=clustering)


get_config = handwritten


def smoke() -> Config:
    """Two rounds of small networks on random tables that lack some views, trained as the released code does."""
    method = methods.Sem(
        as_released=True,
        pretrain_epochs=1,
        update_epochs=1,
        watch_epochs=1,
        hidden=(16,),
        features=8,
        embedding=4,
    )
    real = _sem(data.Synthetic(view_shapes=((6,), (9,), (4,)), missing=0.2), method, rounds=2)
    return dataclasses.replace(
        real,
        train=dataclasses.replace(real.train, batch_size=24, log_every=1),
        evaluation=evaluation.Clustering(features="head", runs=2, starts=2, draws=2),
    )
