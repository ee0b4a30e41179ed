"""Joint contrast of three modalities: Symile, GRAM, and fused views as in ConFu.

    mvcl data prepare sentiment --labels labels.csv --text BERT --audio HUBERT --vision CLIP
    mvcl train field/modalities --workdir runs/symile
    mvcl train field/modalities:gram --workdir runs/gram
    mvcl train field/modalities:confu --workdir runs/confu
    mvcl train field/modalities:symile_digits --workdir runs/symile-digits   # offline

The first command is needed once (docs/how_to/data.md). The settings are those with which ConFu's released code trains
all three, and TRIANGLE, on the text, audio and vision of CMU-MOSI and two more sets; the data here are CMU-MOSEI with
the features of Koromilas 2025. Other objectives and measures:

    --objective.negatives all                                     Symile with n² - 1 negatives, not n - 1
    objective:triangle --objective.squared                        TRIANGLE as released
    objective:pmrl                                                PMRL
    objective:all_pairs objective.pair:info_nce --objective.pairs ordered --objective.pair.temperature 0.07
    objective:mv_infonce --objective.temperature 0.07             MV-InfoNCE
    evaluation:regression                                         the sentiment, from the features of all encoders

The line of all_pairs is ConFu's baseline, the mean of the pairs alone. Each method has its own temperature in its code;
Symile's is learned there, from exp(-2.5) on, and fixed to that here. The variants that end in `_digits` have three
descriptions of the digits in place of the modalities, and small networks; all of that is ours.

Hardware: one GPU; 2 CPU cores for the digits.
Paper: no result with these data and features.
"""

import dataclasses
from functools import partial

from mvcl import data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def _sentiment(objective: losses.Loss, method: methods.MultiEncoder) -> Config:
    """CMU-MOSEI with a transformer for each modality."""
    return Config(
        data=data.Sentiment(  # ours; released CMU-MOSI with MultiBench's features
            dataset="mosei",  # ours
            standardize=True,  # ours
        ),
        views=Views(k=3, strategy="growing"),  # released
        encoder=models.Transformer(  # released, src/modules/encoders/transformer_model.py
            width=300,  # released, transformer_model.py
            depth=5,  # released, transformer_model.py
            heads=5,  # released, transformer_model.py
            dropout=0.1,  # released, transformer_model.py
        ),
        head=models.MLPHead(  # released, scripts/multibench.sh: common_dim
            layers=1,  # released, scripts/multibench.sh
            out=256,  # released, scripts/multibench.sh: common_dim
            output_norm="none",  # released, scripts/multibench.sh
            init="lecun",  # ours; released, PyTorch's uniform
        ),
        objective=objective,
        method=method,
        optimizer=AdamW(  # released, configs/multibench.yaml
            learning_rate=5e-5,  # released, configs/multibench.yaml
            end_learning_rate=1e-6,  # released, configs/multibench.yaml
            reference_batch=None,  # released, configs/multibench.yaml
            warmup_epochs=0,  # released, configs/multibench.yaml
            warmup_share=0,  # released, configs/multibench.yaml
            weight_decay=1e-4,  # released, configs/multibench.yaml
            decays="matrices",  # ours; released, PyTorch's AdamW
            b1=0.9,  # released, configs/multibench.yaml: PyTorch's
            b2=0.999,  # released, configs/multibench.yaml: PyTorch's
            eps=1e-8,  # released, configs/multibench.yaml: PyTorch's
        ),
        train=Train(
            epochs=100,  # released, scripts/multibench.sh
            batch_size=128,  # released, configs/multibench.yaml
            precision="auto",  # ours: bfloat16 on a GPU
            evaluate_every=0,
        ),
        checkpoint=Checkpoint(every_steps=500),
        evaluation=evaluation.Retrieval(  # released
            features="head_views",  # released
            ks=(1, 5, 10),  # released
        ),
    )


def _fused(
    hidden: int = 512,  # released, src/modules/encoders/mlp.py
    out: int = 256,  # released, scripts/multibench.sh: common_dim
) -> methods.MultiEncoder:
    """Pairs of views fused by networks of two layers, with the weight of ConFu's code."""
    return methods.MultiEncoder(  # released
        fusion=models.MLPHead(  # released, src/modules/encoders/mlp.py
            layers=2,  # released, src/modules/encoders/mlp.py
            hidden=hidden,
            out=out,
            activation="relu",  # released, src/modules/encoders/mlp.py
            norm="none",  # released, src/modules/encoders/mlp.py
            output_norm="none",  # ours; released, LeakyReLU of slope 0.2
            init="lecun",  # ours; released, PyTorch's uniform
        ),
        fusion_weight=0.5,  # released, src/modules/models/confu.py
    )


def symile() -> Config:
    """Symile on CMU-MOSEI.

    Cost: 62.8 PFLOP; a step holds 45.2 GB of temporaries in float32 (docs/how_to/recipes.md).
    Ours: not run.
    """
    objective = partial(
        losses.symile,  # released
        temperature=0.0821,  # released, src/modules/models/symile.py: exp(-2.5), from which it is learned
        negatives="shuffled",  # released, symile/loss.py: n
    )
    return _sentiment(objective, methods.MultiEncoder())  # released


def gram() -> Config:
    """GRAM on CMU-MOSEI, text as the anchor.

    Cost: 62.8 PFLOP; a step holds 45.2 GB of temporaries in float32 (docs/how_to/recipes.md).
    Ours: not run.
    """
    objective = partial(
        losses.gram,  # released
        temperature=0.07,  # released, model/gram.py, from which it is learned; ConFu's gram.py
        anchor=0,  # paper: text; ConFu's code has vision
        label_smoothing=0.1,  # released, model/gram.py
        eps=1e-8,  # ours; released, none
    )
    return _sentiment(objective, methods.MultiEncoder())  # released


def confu() -> Config:
    """ConFu on CMU-MOSEI: all pairs of modalities, and each pair, fused, with the third.

    Cost: 62.8 PFLOP; a step holds 45.2 GB of temporaries in float32 (docs/how_to/recipes.md).
    Ours: not run.
    """
    pair = partial(
        losses.info_nce,  # released, src/modules/models/confu.py
        temperature=0.07,  # released, src/modules/models/confu.py
        symmetric=False,  # ours: ordered pairs have both directions
        in_batch_negatives=True,  # released, src/modules/models/confu.py
    )
    objective = losses.all_pairs(pair, pairs="ordered", reduction="mean")  # released, confu.py
    return _sentiment(objective, _fused())  # released, confu.py


def _digits(real: Config, method: methods.MultiEncoder) -> Config:
    """Pixels, Fourier magnitudes and projection profiles of 1,438 digits; 359 are tested."""
    return dataclasses.replace(
        real,
        data=data.DigitsViews(  # ours
            views=("pixels", "fourier", "profiles"),  # ours
            scaling=("standard",),  # ours
            held_out=True,  # ours
            noise=False,  # ours
        ),
        encoder=models.MLP(widths=(256, 128), norm="none", activation="relu"),  # ours
        head=models.MLPHead(layers=1, out=64, output_norm="none", init="lecun"),  # ours
        method=method,
        optimizer=AdamW(  # ours
            learning_rate=1e-3,  # ours
            end_learning_rate=0.0,  # ours
            reference_batch=None,  # ours
            warmup_epochs=0,  # ours
            warmup_share=0,  # ours
            weight_decay=1e-4,  # ours
            decays="matrices",  # ours
            b1=0.9,  # ours
            b2=0.999,  # ours
            eps=1e-8,  # ours
        ),
        train=Train(epochs=100, batch_size=128, precision="auto", evaluate_every=0),  # ours
    )


def symile_digits() -> Config:
    """Symile on three descriptions of scikit-learn's digits, offline.

    Cost: half a minute.
    """
    return _digits(symile(), methods.MultiEncoder())  # released


def gram_digits() -> Config:
    """GRAM on three descriptions of scikit-learn's digits, offline.

    Cost: half a minute.
    A volume does not tell a vector from its negative.
    """
    return _digits(gram(), methods.MultiEncoder())  # released


def confu_digits() -> Config:
    """ConFu on three descriptions of scikit-learn's digits, offline.

    Cost: half a minute.
    --method.fusion-weight 0 trains the pairs of views alone.
    """
    return _digits(confu(), _fused(hidden=128, out=64))  # ours


get_config = symile


def _small(real: Config, method: methods.MultiEncoder) -> Config:
    """Five steps of small transformers on random sequences."""
    return dataclasses.replace(
        real,
        data=data.Synthetic(
            regression=True, view_shapes=((5, 8), (7, 6), (6, 4)), padded=True, missing=0.2, groups=4
        ),
        encoder=models.Transformer(width=8, depth=1, heads=2),
        head=models.MLPHead(layers=1, out=8),
        method=method,
        train=dataclasses.replace(real.train, steps=5, batch_size=16, log_every=1),
    )


def smoke() -> Config:
    """Some steps of `symile` on random sequences, some of them missing, and retrieval between them."""
    return _small(symile(), methods.MultiEncoder())


def smoke_gram() -> Config:
    """Some steps of `gram` on random sequences, some of them missing, and retrieval between them."""
    return _small(gram(), methods.MultiEncoder())


def smoke_confu() -> Config:
    """Some steps of `confu` on random sequences, some of them missing, and retrieval between them."""
    return _small(confu(), _fused(hidden=16, out=8))
