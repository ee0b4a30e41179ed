"""Several seeds of a config, and fine-tuning: the supervised method, starting from the encoder of a run."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mvcl import _progress, augment, data, evaluation, methods, models
from mvcl.training._config import Config, Train, Views
from mvcl.training._evaluate import Table
from mvcl.training._loop import train
from mvcl.training._optimizers import Sgd
from mvcl.training._serialise import load


def finetune_config(
    run: Path, source: data.Source | None = None, *, reference: Config | None = None
) -> Config:
    """The default config of `mvcl finetune`: train the encoder and a new linear layer on labelled images.

    Shidani 2024, Table 2, the recipe of its transfer results (Table 3): SGD with momentum 0.9, learning rate 1e-3 x
    batch / 256, cosine after 5 epochs of warm-up, no weight decay, float32, RandAugment 9/0.5, mixup 0.8, CutMix 1.0,
    random erasing 0.25, 2 repeated augmentations, and a linear layer that starts at zero weights and the bias
    log(1 / classes).

    Where the table lists several values, these are learning rate 1e-3 of {1e-4, 1e-3, 1e-3}, batch 1024 of {384, 1024}
    and 300 epochs of {300, 1000, 2000, 4000}. The text has 4000 epochs for Aircraft and 1e-4 for Caltech-101; of other
    sets it does not say which values they have. The table has the names of DeiT (Touvron et al. 2021, Table 9). It
    prints "prob." for 0.8 and 1.0; in DeiT's code these are alphas of Beta distributions, as here.

    k is the number of repeated augmentations: a batch has train.batch_size images and k views of each, 1024 in all. An
    epoch shows each of the N images k times, in N / 512 steps. In DeiT's code (RASampler, with 3 repeats) an epoch has
    N views, so N / 1024 steps here: its 300 epochs are 150 of ours. The paper does not say which epoch it means.

    RandAugment's 9/0.5 is on timm's scale of 10, which is 27 and 1.5 on torchvision's scale of 30, here. The ranges are
    as timm's, in its increasing form, which DeiT has. But timm applies each drawn operation with probability 1/2, here
    always; it has Invert and SolarizeAdd, here there is the identity; at 9 it posterises to 1 bit, here to 4; and it
    interpolates moved pixels and fills borders with the mean colour, here nearest pixels and black.

    Args:
      run: folder of the run whose encoder is fine-tuned.
      source: labelled images; None uses the run's source.
      reference: a config with the functions and classes from outside mvcl that the run uses.
    """
    pretrained = load(run, reference)
    pretraining = pretrained.policies[0]
    policy = augment.Policy(
        image_size=pretraining.image_size,
        rand_augment_ops=2,
        rand_augment_magnitude=27.0,
        rand_augment_deviation=1.5,
        erase_probability=0.25,
        mean=pretraining.mean,
        std=pretraining.std,
    )
    return Config(
        data=pretrained.data if source is None else source,
        views=Views(k=2, policy=policy),
        encoder=pretrained.encoder,
        head=models.IdentityHead(),
        method=methods.Supervised(mixup=0.8, cutmix=1.0, zero_head=True),
        # 256 views are 128 images with 2 views each.
        optimizer=Sgd(learning_rate=1e-3, reference_batch=128, momentum=0.9, warmup_epochs=5),
        train=Train(epochs=300, batch_size=512, precision="float32", evaluate_every=0, initial=str(run)),
        evaluation=evaluation.Predictions(),
    )


def finetune(
    config: Config, folder: Path, seeds: int = 3, *, reference: Config | None = None
) -> list[evaluation.Result]:
    """Fine-tune once per seed, each in its own folder, and average the results.

    Args:
      config: from `finetune_config`; its train.seed is the first seed.
      folder: parent of the run folders, as for `train_seeds`.
      seeds: number of runs.
      reference: a config with the functions and classes of the user's own that the pretrained run uses.

    Returns:
      The results of the trained encoders, mean and standard deviation over seeds.

    Raises:
      ValueError: as `train`, or seeds is less than 1.
    """
    return train_seeds(config, folder, seeds, reference=reference)["trained encoder"]


def train_seeds(
    config: Config,
    folder: Path,
    seeds: int = 3,
    *,
    reference: Config | None = None,
    page: Callable[[], Path] | None = None,
) -> Table:
    """Train a config once per seed, each in its own folder, and average the evaluation tables.

    Args:
      config: the experiment; its train.seed is the first seed.
      folder: parent of the run folders `seed0`, `seed1`, ...; existing runs are resumed, finished ones are read.
      seeds: number of runs.
      reference: a config with the functions and classes of the user's own that the run of train.initial uses.
      page: as for `train`, for all seeds.

    Returns:
      The evaluation table: row name -> results, mean and standard deviation over seeds.

    Raises:
      ValueError: as `train`, or seeds is less than 1.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    tables = []
    for seed in _progress.track(range(config.train.seed, config.train.seed + seeds), "seed", seeds, "seeds"):
        of_seed = dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))
        tables.append(train(of_seed, folder / f"seed{seed}", reference=reference, page=page))
    return {
        row: [_mean(results) for results in zip(*(table[row] for table in tables), strict=True)]
        for row in tables[0]
    }


def _mean(results: tuple[evaluation.Result, ...]) -> evaluation.Result:
    values = [result.value for result in results if result.value is not None]
    if len(values) < len(results):
        return next(result for result in results if result.value is None)
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    protocol = f"{results[0].protocol}, mean and standard deviation of {len(values)} seeds"
    return evaluation.Result(
        results[0].name, float(np.mean(values)), deviation, protocol, better=results[0].better
    )
