"""Piran 2024, DomainNet: one encoder over k = 5 domains, 16 classes a device, M3G with ε = 0.05; one domain held out.

    mvcl train configs/piran/domainnet.py --workdir runs/domainnet --data.path DOMAINNET --train.batch-size 128

Section 5.2, the tables of domain transfer: a batch is n classes times one image of each seen domain, and the features
are tested on 5 domains to the held-out one and on each domain to each other. docs/data.md says how to get the images.
The batch is 16 a device. Its other cells:

    --data.held-out quickdraw                                     the domain that is held out
    objective:all_pairs objective.pair:info_nce                   pairwise InfoNCE (byol: pairwise BYOL)
    objective:one_vs_rest objective.pair:info_nce                 one against the average of the rest
"""

from mvcl import augment, data, evaluation, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.SOURCES["domainnet"](held_out="sketch"),
        views=Views(k=5, policy=augment.simclr()),
        encoder=models.ENCODERS["vit_b16"](),
        head=models.HEADS["piran"](),
        objective=methods.OBJECTIVES["m3g"](epsilon=0.05, scope="device"),
        method=methods.StudentTeacher(momentum=0.99, predictor=models.HEADS["piran"]()),
        optimizer=AdamW(
            learning_rate=6.5e-4,
            end_learning_rate=5e-5,
            b1=0.9,
            b2=0.95,
            weight_decay=0.04,
            end_weight_decay=0.4,
        ),
        # A pass over the 345 classes is a few steps; the paper's length is set by steps.
        train=Train(steps=100_000, batch_size=16, threads=16, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.EVALUATIONS["domains"](),
    )
