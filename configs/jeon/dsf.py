"""Jeon 2025, the divergence-based similarity (DSF), CIFAR-10: MoCo v2 on M = 8 views, m = M/2 for each encoder.

    mvcl data prepare cifar10          # once; needs the `tensorflow` extra
    mvcl train jeon/dsf --workdir runs/dsf
    mvcl train jeon/dsf:cifar10_moco --workdir runs/dsf-moco
    mvcl train jeon/dsf:cifar10_released --workdir runs/dsf-released

A variant for each row of Table 1, at a fixed number of views B M. All cells of the paper's tables and figures are
studies (`mvcl study --list`); as options of one run:

    --views.k 4 --train.batch-size 512          Figure 4: M = 4 with the same batch of 256; n = 2 batch / M
    --objective.temperature 0.9                 Table 3
    --train.epochs 800                          Figure 3
    --objective.queue-concentration batch_mean  one concentration for all queued keys, as the released code

The paper is followed where it speaks, then the released code: a variant NAME_released has the other settings of that
code too, decay of all parameters, PyTorch's initial weights of heads and stem, one concentration of
queued keys. It trains MoCo and DSF; loss_avg and fea_avg, which it does not have, take the same settings.
Learning rates: the paper prints them for ImageNet-100 alone, where DSF's is twice the others'. Here are the released
peaks: 0.06 for DSF (batch 256) and 0.12 for MoCo (batch 1024), which at an equal batch is half of DSF's; loss_avg and
fea_avg have 0.03 (batch 256).

Hardware: one GPU.
Ours: not run at this length.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, evaluation, losses, methods, models
from mvcl.training import Checkpoint, Config, Sgd, Train, Views


def _evaluation(
    epochs: int = 30,  # released
    batch_size: int = 256,  # released
) -> evaluation.Classification:
    """The released protocol: k-NN, and a linear layer of learning rate 30 with a cosine over 30 epochs.

    The released command for CIFAR-10 names steps too, at epochs 5, 10, 15 and 20, which its code reads only with
    `--cos False`; here they are `--evaluation.linear.decay steps --evaluation.linear.milestones 5 10 15 20`.
    """
    return evaluation.Classification(  # paper, 5.2
        features="encoder",  # paper, 5.2, of the linear layer; of k-NN, see knn_head
        knn_head=True,  # released, train_moco_cifar*.py, knn(): the network with its head
        knn_k=200,  # paper, 5.2
        knn_temperature=0.1,  # released, train_moco_cifar*.py: --knn-t
        labels_per_class=(5, 10),  # ours: not in the paper
        draws=10,  # ours: not in the paper
        linear=evaluation.LinearProbe(  # released, main_lincls.py
            learning_rates=(30.0,),  # released
            reference_batch=256,  # released
            batch_size=batch_size,
            epochs=epochs,
            momentum=0.9,  # released
            weight_decay=0.0,  # released
            decay="cosine",  # released: the default of main_lincls.py
            augment=True,  # released
            crop_padding=0,  # released
            policy=_probe_policy(),
        ),
    )


def _probe_policy() -> augment.Policy:
    """Crops, flips, jitter and grayscale, without blur, of the linear layer for CIFAR-10."""
    return augment.simclr(  # released, main_lincls.py
        strength=0.5,  # released, main_lincls.py
        image_size=32,  # released, main_lincls.py
        blur_probability=0.0,  # released, main_lincls.py
    )


def _resnet(width: int = 64) -> models.ResNet:  # paper, 5.1: ResNet-18
    return models.ResNet(  # paper, 5.1
        depth=18,  # paper, 5.1
        stem="cifar",  # released, utils/models/mocov2_cifar.py
        norm="batch",  # released, utils/models/mocov2_cifar.py
        width=width,
        batch_groups=8,  # released: --bn-splits 8
        batch_rows="strided",  # released, utils/models/mocov2_cifar.py: SplitBatchNorm
        zero_init_residual=False,  # released: torchvision's
        initial="he_fan_out",  # released: torchvision's
        stem_initial="same",  # ours; released, PyTorch's, as in cifar10_released
    )


def _moco_v2(queue: int = 4096) -> methods.MocoV2:  # released: --moco-k 4096; paper, 4.5, 4,096 to 65,536
    return methods.MocoV2(  # paper, 5.1
        momentum=0.99,  # released: --moco-m 0.99
        end_momentum=0.99,  # released: no schedule
        queue=queue,
        queue_keys="one",  # ours: 4096 rows are then as many instances for all objectives
        shuffle_keys=True,  # released: _batch_shuffle_single_gpu
        evaluate="online",  # released, train_moco_cifar.py: encoder_q
    )


def _info_nce() -> losses.Loss:
    """InfoNCE of the baselines on CIFAR-10, against the queue alone."""
    return partial(
        losses.info_nce,  # paper, 4.5
        temperature=0.1,  # released: --moco-t 0.1
        symmetric=False,  # released, utils/models/mocov2_cifar.py
        in_batch_negatives=False,  # released: the queue only
    )


def cifar10() -> Config:
    """CIFAR-10: ResNet-18, MoCo v2 with a queue of 4096, its keys the only negatives.

    Cost: 198 PFLOP (docs/how_to/recipes.md).
    Paper (Table 1, DSF for 250 epochs): linear 91.21 %, k-NN 90.04 %.
    """
    return Config(
        data=data.Tfds(  # paper, 5.1
            name="cifar10",  # paper, 5.1
            train_split="train",  # paper, 5.1
            test_split="test",  # paper, 5.1
            classes=(),  # paper, 5.1: all
        ),
        views=Views(
            k=8,  # paper, Table 1
            policy=augment.dsf(image_size=32),  # released, train_moco_cifar_multiview.py; paper: the list
            strategy="fixed",  # paper, 5.3
            reference_views=2,  # paper, 5.3: B of MoCo
        ),
        encoder=_resnet(),
        head=models.moco_v2_head(),  # released, utils/models/mocov2_cifar.py: two layers; paper, 5.1: to 128
        objective=partial(  # paper, Eqs. 10 and 11
            losses.dsf,
            temperature=1.0,  # paper, 5.5
            queue_concentration="own",  # paper, 4.2; released, the mean of the batch
            normalize_concentration=True,  # paper, Eq. 8
            resultant_scale=0.95,  # paper, Eq. 8
            mean_resultant="estimate",  # released, utils/models/dsf.py: A = R; paper, Eq. 9, "exact"
            divergence="forward",  # paper, Eq. 9
            in_batch_negatives=False,  # released: the queue only
        ),
        method=_moco_v2(),
        optimizer=Sgd(  # released
            learning_rate=0.06,  # released
            end_learning_rate=0.0,  # released: a cosine to zero
            scaling="linear",  # ours
            warmup_epochs=0.0,  # released
            warmup_share=0.0,  # released
            reference_batch=256,  # ours; released, the rate of each batch is printed
            momentum=0.9,  # released
            weight_decay=5e-4,  # released
            decays="matrices",  # ours; released, all, as in cifar10_released
        ),
        train=Train(
            epochs=250,  # paper, Table 1
            batch_size=1024,  # released: 1024 x 2 and 256 x 8 views
            precision="float32",  # released: no autocast
        ),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_evaluation(),
    )


def _cifar10_of_cosines(objective: losses.Loss) -> Config:
    """`cifar10` with another objective, at the learning rate of the released baseline for its batch."""
    dsf = cifar10()
    optimizer = dataclasses.replace(
        dsf.optimizer,
        learning_rate=0.03,  # released for MoCo, 0.12 at 1024 images; ours for the averages
    )
    return dataclasses.replace(dsf, objective=objective, optimizer=optimizer)


def cifar10_loss_avg() -> Config:
    """CIFAR-10, InfoNCE averaged over the pairs of a query and a key.

    Paper (Table 1, loss_avg for 250 epochs): linear 88.58 %, k-NN 88.28 %.
    """
    return _cifar10_of_cosines(losses.cross_pairs(_info_nce()))  # paper, Algorithm 1


def cifar10_fea_avg() -> Config:
    """CIFAR-10, InfoNCE of the mean query and the mean key.

    Paper (Table 1, fea_avg for 250 epochs): linear 88.02 %, k-NN 87.47 %.
    """
    return _cifar10_of_cosines(losses.mean_pair(_info_nce(), renormalize=False))  # paper, Algorithm 1


def cifar10_moco() -> Config:
    """CIFAR-10, MoCo v2 itself: two views of four times as many images, for 800 epochs.

    Paper (Table 1, MoCo for 800 epochs): linear 88.10 %, k-NN 88.44 %.
    """
    config = _cifar10_of_cosines(_info_nce())
    views = dataclasses.replace(config.views, k=2)  # paper, Table 1
    train = dataclasses.replace(config.train, epochs=800)  # paper, Table 1
    return dataclasses.replace(config, views=views, train=train)


def _cifar10_as_released(config: Config) -> Config:
    """A recipe for CIFAR-10 with all settings of the released code."""
    return dataclasses.replace(
        config,
        encoder=dataclasses.replace(_resnet(), stem_initial="torch"),  # released: nn.Conv2d
        head=dataclasses.replace(models.moco_v2_head(), init="torch"),  # released: nn.Linear
        optimizer=dataclasses.replace(config.optimizer, decays="all"),  # released: model.parameters()
    )


def cifar10_released() -> Config:
    """CIFAR-10 and DSF with all settings of the released code.

    Paper (Table 1, DSF for 250 epochs): linear 91.21 %, k-NN 90.04 %.
    """
    config = _cifar10_as_released(cifar10())
    objective = partial(config.objective, queue_concentration="batch_mean")  # released, utils/models/dsf.py
    return dataclasses.replace(config, objective=objective)


def cifar10_loss_avg_released() -> Config:
    """`cifar10_loss_avg` with the settings of the released code, which does not have the loss."""
    return _cifar10_as_released(cifar10_loss_avg())


def cifar10_fea_avg_released() -> Config:
    """`cifar10_fea_avg` with the settings of the released code, which does not have the loss."""
    return _cifar10_as_released(cifar10_fea_avg())


def cifar10_moco_released() -> Config:
    """CIFAR-10 and MoCo v2 with all settings of the released code.

    Paper (Table 1, MoCo for 800 epochs): linear 88.10 %, k-NN 88.44 %.
    """
    return _cifar10_as_released(cifar10_moco())


get_config = cifar10


def _small(config: Config) -> Config:
    """Four steps of 8 examples, and two epochs of the linear layer."""
    train = dataclasses.replace(config.train, steps=4, batch_size=32, log_every=1)
    return dataclasses.replace(config, train=train, evaluation=_evaluation(epochs=2, batch_size=32))


def smoke() -> Config:
    """Some steps of `cifar10` with a narrow ResNet-18 and a short queue on random images, and its evaluation."""
    encoder, method = _resnet(width=4), _moco_v2(queue=32)
    return _small(dataclasses.replace(cifar10(), data=data.Synthetic(), encoder=encoder, method=method))
