"""Encoders and projection heads (flax nnx), each with a frozen config.

A config's `build` returns the module: `ResNet(depth=18).build((32, 32, 3), dtype=jnp.bfloat16, rngs=nnx.Rngs(0))`.
An encoder maps (n, *input_shape) to (n, encoder.features) in float32; a head maps that to (n, head.features). `dtype`
is the computation dtype; parameters, normalisation and results are float32. A new module is in train mode; `eval_view`
shares its variables in evaluation mode.
"""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.models._autoencoders import Autoencoders
    from mvcl.models._configs import (
        ENCODERS,
        HEADS,
        SMALL,
        ByShape,
        EncoderConfig,
        HeadConfig,
        byol_head,
        koromilas_head,
        moco_v2_head,
        moco_v3_head,
        piran_head,
    )
    from mvcl.models._convolutional import EegConv, EegConvEncoder, ResNet, ResNetEncoder
    from mvcl.models._layers import (
        MLP,
        ConvNet,
        ConvNetEncoder,
        IdentityHead,
        MLPHead,
        Perceptron,
        advance_dropout,
        eval_view,
        parameter_count,
        xla_convolutions,
    )
    from mvcl.models._norms import NORM_EPS, RUNNING_DECAY, counted, counts_rows
    from mvcl.models._remat import NoBlocks, Remat, in_turn, rematerialised
    from mvcl.models._vit import Transformer, TransformerEncoder, ViT, ViTEncoder, attention_by
    from mvcl.models._weights import export, load_weights

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
