"""Piran 2024, ImageNet-1K: ViT-B/16, student and teacher, M3G on k = 4 views, 64 examples a device, 300 epochs.

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/data.md
    mvcl train configs/piran/imagenet1k.py --workdir runs/m3g --train.batch-size 4096

Section 5.1, the table for ImageNet-1K. The batch is 64 a device: set --train.batch-size to 64 times the devices. The
first k views of (BYOL's first, BYOL's second, SimCLR's, BYOL's first) are used. Its other cells:

    --views.k 2                                                   the number of views, 2 to 4
    objective:all_pairs objective.pair:info_nce                   pairwise InfoNCE (byol: pairwise BYOL)
    objective:one_vs_rest objective.pair:info_nce                 one against the average of the rest
"""

from mvcl import augment, data, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def get_config() -> Config:
    """The experiment."""
    policies = (augment.byol_global1(), augment.byol_global2(), augment.simclr(), augment.byol_global1())
    return Config(
        data=data.Tfds(name="imagenet2012", test_split="validation"),
        views=Views(k=4, policies=policies),
        encoder=models.ENCODERS["vit_b16"](),
        head=models.HEADS["piran"](),
        objective=methods.OBJECTIVES["m3g"](epsilon=0.2, scope="device"),
        method=methods.StudentTeacher(momentum=0.99, predictor=models.HEADS["piran"]()),
        optimizer=AdamW(
            learning_rate=6.5e-4,
            end_learning_rate=5e-5,
            b1=0.9,
            b2=0.95,
            warmup_epochs=10,
            weight_decay=0.04,
            end_weight_decay=0.4,
        ),
        train=Train(epochs=300, batch_size=64, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
    )
