"""Jeon 2025, ImageNet-100: ViT-S/16 with frozen patches, MoCo v3, M = 8 views, the divergence-based similarity (DSF).

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/data.md
    mvcl train configs/jeon/imagenet100.py --workdir runs/dsf100

The table for ImageNet-100. Its other cells:

    objective:cross_pairs objective.pair:info_nce --objective.pair.temperature 0.2    loss_avg
    objective:mean_pair objective.pair:info_nce --objective.pair.temperature 0.2      fea_avg
    --views.k 2                                                                       MoCo v3 with the same similarity
"""

from mvcl import augment, data, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.Tfds(name="imagenet2012", test_split="validation", classes=("imagenet100",)),
        views=Views(k=8, policies=(augment.byol_global1(), augment.byol_global2()) * 4, strategy="fixed"),
        encoder=models.ViT(patch=16, width=384, depth=12, heads=6, frozen_patches=True),
        head=models.HEADS["moco_v3"](),
        objective=methods.OBJECTIVES["dsf"](),
        method=methods.MocoV3(momentum=0.99),
        optimizer=AdamW(learning_rate=1.5e-4, reference_batch=256, weight_decay=0.1, warmup_epochs=40),
        train=Train(epochs=300, batch_size=512, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
    )
