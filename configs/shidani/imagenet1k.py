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
"""

from mvcl import augment, data, methods, models
from mvcl.training import Checkpoint, Config, Lars, Train, Views


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.Tfds(name="imagenet2012", test_split="validation"),
        views=Views(k=8, policy=augment.simclr(strength=1.0)),
        encoder=models.ENCODERS["resnet50"](),
        head=models.MLPHead(norm="batch", output_norm="batch_no_shift"),
        objective=methods.OBJECTIVES["poly_view"](temperature=0.1, aggregation="geometric"),
        optimizer=Lars(learning_rate=3.2, reference_batch=None, weight_decay=1e-4, warmup_epochs=10),
        train=Train(epochs=128, batch_size=4096, precision="bfloat16", threads=16),
        checkpoint=Checkpoint(every_steps=500),
    )
