"""Shidani 2024, ImageNet-1K: ResNet-50, M = 8 views, geometric poly-view loss, LARS, bfloat16; batch growing with M.

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/data.md
    mvcl train configs/shidani/imagenet1k.py --workdir runs/polyview

Section 3.2, Figure 3 (hyperparameters: Appendix, table for ImageNet-1K). Its other lines:

    --views.strategy fixed                                        K = (2 / M) 4096 examples, as many views as SimCLR has
    --views.k 2                                                   SimCLR
    objective:poly_view --objective.aggregation arithmetic        the arithmetic poly-view loss
    objective:sufficient_statistics                               sufficient statistics
    objective:all_pairs --objective.pairs ordered objective.pair:info_nce    Multi-Crop
    --train.epochs 256                                            the length of training, from 128 to 1024

Table 2 and Table 3, fine-tuning on ImageNet-1K and on each of the nine transfer sets (docs/evaluation.md):

    mvcl finetune runs/polyview
    mvcl data prepare transfer && mvcl finetune runs/polyview --data food101

Hardware: many devices; a step holds 4,716 GB of temporaries over all of them (docs/recipes.md), less with
--train.microbatch.
Cost: 31,500 PFLOP; not timed here.
Paper: accuracies stand in figures only. For 128 epochs at batch 256 this loss is above SimCLR at 1024 and batch 4096.
Ours: not run.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, losses, models
from mvcl.training import Checkpoint, Config, Lars, Train, Views


def get_config() -> Config:
    """The growing batch, M = 8."""
    return Config(
        data=data.Tfds(name="imagenet2012", test_split="validation"),
        views=Views(k=8, policy=augment.simclr(strength=1.0)),
        encoder=models.ResNet(depth=50),
        head=models.MLPHead(norm="batch", output_norm="batch_no_shift"),
        objective=partial(losses.poly_view, temperature=0.1, aggregation="geometric"),
        optimizer=Lars(learning_rate=3.2, reference_batch=None, weight_decay=1e-4, warmup_epochs=10),
        train=Train(epochs=128, batch_size=4096, precision="bfloat16", threads=16),
        checkpoint=Checkpoint(every_steps=500),
    )


def smoke() -> Config:
    """Some steps of a narrow ResNet-18 on random images of different sizes."""
    real = get_config()
    return dataclasses.replace(
        real,
        data=data.Synthetic(sizes="different"),
        views=Views(k=8, policy=augment.simclr(strength=1.0, image_size=32)),
        encoder=models.ResNet(depth=18, width=4),
        train=dataclasses.replace(real.train, steps=4, batch_size=8, log_every=1),
    )
