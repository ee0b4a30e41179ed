"""Piran 2024, sleep stages from EEG: one encoder shared by k = 6 channels, M3G on 16 windows, 10 epochs.

    mvcl data prepare eeg --source PHYSIONET2018                                # once; see docs/how_to/data.md
    mvcl data prepare eeg --format sleep_edfx --source SLEEP_CASSETTE --wake-minutes 1000000
    mvcl train piran/eeg --workdir runs/eeg

Section 4.3, Table 3: pre-training on PhysioNet 2018; then, on the 153 nights of SleepEDFx, a linear combination of the
two channels and a classifier are trained on 10, 50, 100 and 1000 labels a class. Its other row:

    objective:all_pairs objective.pair:nt_xent --train.batch-size 64        pairwise InfoNCE
    mvcl train piran/eeg:infonce_released --workdir runs/eeg-infonce        the same as that code trains it

The settings are those of Brüsch 2023, whose code the paper uses (github.com/theabrusch/Multiview_TS_SSL), with its
options `--pretraining_setup nonMPNN --loss contrastive`. Five runs,
--train.seed 0 --evaluation.seed 0 to --train.seed 4 --evaluation.seed 4, so that each has its own draws of labels
too: `mvcl study piran_table3 --scale paper` runs all.

Hardware: one GPU; a step holds 1.4 GB of temporaries in float32 (docs/how_to/recipes.md).
Cost: 35.1 PFLOP; not timed here.
Paper (Table 3, SleepEDFx, 10, 50, 100 and 1000 labels a class): M3G 36.6, 49.2, 56.1 and 64.6 %; InfoNCE 35.5, 49.3,
52.2 and 56.3 %.
Ours: not run.
"""

import dataclasses
from functools import partial

from mvcl import data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def _evaluation() -> evaluation.Channels:
    """A linear combination of the channels and a classifier."""
    return evaluation.Channels(  # paper, B
        features="views",  # paper, B
        of="transfer",  # paper, 4.3
        labels_per_class=(10, 50, 100, 1000),  # paper, 4.3
        draws=5,  # ours; released, one a seed
        valid_fraction=0.25,  # released, src/eegdataset.py
        valid_seed=None,  # ours; released, src/eegdataset.py, one draw for all runs
        probe=evaluation.ChannelProbe(  # paper, B
            learning_rate=1e-3,  # released, main.py
            weight_decay=5e-4,  # released, main.py
            batch_size=128,  # released, main.py
            epochs=40,  # paper, B
            patience=7,  # released, main_bendr.py
        ),
    )


def get_config() -> Config:
    """PhysioNet 2018, evaluated on SleepEDFx."""
    return Config(
        method=methods.Simclr(),  # paper, 4.3: one encoder
        data=data.Eeg(  # paper, 4.3: PhysioNet 2018
            channels=(),  # paper, 4.3: all six
            split_seed=0,  # released, src/eegdataset.py: one split for all runs
            test_fraction=0.2,  # released, src/eegdataset.py
            standardize="window",  # released, src/eegdataset.py
            transfer="sleep_edfx",  # paper, 4.3
        ),
        views=Views(
            k=6,  # paper, 4.3
            strategy="growing",  # ours
        ),
        encoder=models.EegConv(  # paper, A
            channels=256,  # paper, A
            out=64,  # paper, A
            dropout=0.1,  # released, src/models.py
            stretches=4,  # released, src/multiview.py: --loss contrastive
            init="he_fan_in",  # ours; released, PyTorch's uniform, variance 1 / (3 fan in)
        ),
        head=models.MLPHead(  # released, src/multiview.py: --loss contrastive
            layers=1,  # released, src/multiview.py
            out=32,  # released, src/multiview.py
            output_norm="none",  # released, src/multiview.py
            init="lecun",  # ours; released, PyTorch's uniform, variance 1 / (3 inputs)
        ),
        objective=partial(  # paper, Eq. 14
            losses.m3g,
            epsilon=0.2,  # paper, 4.3
            cost="circular_variance",  # paper, Eq. 12
            cost_scale=1.0,  # ours
            threshold=1e-3,  # paper, Algorithm 1
            max_iterations=100,  # ours
            epsilon_init=1.0,  # paper, Algorithm 1: epsilon is constant
            epsilon_decay=1.0,  # paper, Algorithm 1: epsilon is constant
        ),
        optimizer=AdamW(  # released, main.py
            learning_rate=1e-3,  # released, main.py
            end_learning_rate=1e-3,  # released, main.py: constant
            b1=0.9,  # released, main.py: PyTorch's
            b2=0.999,  # released, main.py: PyTorch's
            eps=1e-8,  # released, main.py: PyTorch's
            reference_batch=None,  # released, main.py
            weight_decay=5e-4,  # released, main.py
            decays="matrices",  # ours; released, main.py, all
            warmup_epochs=0.0,  # released, main.py
            warmup_share=0.0,  # released, main.py
        ),
        train=Train(
            epochs=10,  # paper, 4.3
            batch_size=16,  # paper, 4.3; 64 for InfoNCE
            precision="float32",  # released, main.py
            evaluate_every=0,
        ),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_evaluation(),
    )


def infonce_released() -> Config:
    """Pairwise InfoNCE as Brüsch 2023's code trains it: PyTorch's initial weights, decay of all parameters.

    Evaluated with one draw of labels and the same validation people in every run. Its classifier is trained with the
    encoder's dropout on; here it has features without. Paper (Table 3): 35.5, 49.3, 52.2 and 56.3 %.
    """
    real = get_config()
    return dataclasses.replace(
        real,
        encoder=models.EegConv(  # paper, A
            channels=256,  # paper, A
            out=64,  # paper, A
            dropout=0.1,  # released, src/models.py
            stretches=4,  # released, src/multiview.py: --loss contrastive
            init="torch",  # released, src/models.py
        ),
        head=models.MLPHead(  # released, src/multiview.py: --loss contrastive
            layers=1,  # released, src/multiview.py
            out=32,  # released, src/multiview.py
            output_norm="none",  # released, src/multiview.py
            init="torch",  # released, src/multiview.py
        ),
        objective=losses.all_pairs(  # released, src/losses.py: --loss contrastive
            partial(
                losses.nt_xent,  # released, src/losses.py
                temperature=0.5,  # released, src/losses.py
            ),
            pairs="unordered",  # released, src/losses.py
            reduction="mean",  # released, src/losses.py
        ),
        optimizer=dataclasses.replace(
            real.optimizer,
            decays="all",  # released, main.py
        ),
        train=dataclasses.replace(
            real.train,
            batch_size=64,  # paper, 4.3
        ),
        evaluation=dataclasses.replace(
            _evaluation(),
            draws=1,  # released, src/eegdataset.py
            valid_seed=0,  # released, src/eegdataset.py
        ),
    )


def smoke() -> Config:
    """Some steps of a narrow network on random windows of 10 seconds, and the probe of its channels."""
    real = get_config()
    return dataclasses.replace(
        real,
        data=data.Synthetic(view_shapes=((1000,),) * 6, classes=5, groups=4, transfer=True),
        encoder=models.EegConv(channels=8, out=4, stretches=4),
        head=models.MLPHead(layers=1, out=8),
        train=dataclasses.replace(real.train, steps=4, batch_size=8, log_every=1),
        evaluation=evaluation.Channels(of="transfer", labels_per_class=(2, 5), draws=2),
    )
