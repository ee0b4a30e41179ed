"""Vision transformers of other programs under timm's names: Hugging Face's ViT, CLIP and DINOv2."""

import math
import re

import jax.numpy as jnp
import numpy as np

from mvcl.models._vit import resized

# Of Hugging Face, in this order; q, k and v become one matrix.
_RENAMED = [
    (r"embeddings\.(cls_token|class_embedding)$", "cls_token"),
    (r"embeddings\.position_embeddings?(\.weight)?$", "pos_embed"),
    (r"embeddings\.patch_embedding(s\.projection)?\.", "patch_embed.proj."),
    (r"encoder\.layers?\.(\d+)\.", r"blocks.\1."),
    (r"(attention\.attention|self_attn)\.([qkv])(uery|ey|alue|_proj)\.", r"attn.\2."),
    (r"(attention\.output\.dense|self_attn\.out_proj)\.", "attn.proj."),
    (r"(blocks\.\d+)\.intermediate\.dense\.", r"\1.mlp.fc1."),
    (r"(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"(layernorm_before|layer_norm1)\.", "norm1."),
    (r"(layernorm_after|layer_norm2)\.", "norm2."),
    (r"layer_scale(\d)\.lambda1$", r"ls\1.gamma"),
    (r"(^|\.)(layernorm|post_layernorm)\.", r"\1norm."),
    (r"pre_layrnorm\.", "norm_pre."),
]
_SCALED = {"ls1": "attn.proj", "ls2": "mlp.fc2"}


def as_timm(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a file with the names and shapes of timm's ViT.

    DINOv2's LayerScale becomes part of a branch's last linear map. `ValueError` for registers, which it lacks.
    """
    found: dict[str, np.ndarray] = {}
    for name, value in tensors.items():
        for pattern, to in _RENAMED:
            name = re.sub(pattern, to, name)
        if name.endswith(("cls_token", "pos_embed")):
            value = value.reshape(1, -1, value.shape[-1])
        found[name] = value
    for name in [name for name in found if name.endswith((".attn.q.weight", ".attn.q.bias"))]:
        each = [name.replace(".attn.q.", f".attn.{of}.") for of in "qkv"]
        if all(of in found for of in each):
            found[name.replace(".attn.q.", ".attn.qkv.")] = np.concatenate([found.pop(of) for of in each])
    for name in [name for name in found if re.search(r"\.ls\d\.gamma$", name)]:
        block, of, _ = name.rsplit(".", 2)
        scale = found.pop(name).astype(np.float32)
        for leaf in ("weight", "bias"):
            key = f"{block}.{_SCALED[of]}.{leaf}"
            found[key] = found[key] * (scale[:, None] if leaf == "weight" else scale)
    for name in [name for name in found if name.endswith("patch_embed.proj.weight")]:
        found.setdefault(name.removesuffix("weight") + "bias", np.zeros(len(found[name]), np.float32))
    if registers := [name for name in found if "register_token" in name or name.endswith("reg_token")]:
        what = f"the encoder ViT has no registers, and the file has {registers[0]}"
        raise ValueError(f"{what}; take one without")
    return found


def squared(positions: np.ndarray, tokens: int) -> np.ndarray:
    """`resized` from one square of patches to another of so many; else as they are."""
    old, new = math.isqrt(positions.shape[1] - 1), math.isqrt(tokens)
    if old * old != positions.shape[1] - 1 or new * new != tokens:
        return positions
    return np.asarray(resized(jnp.asarray(positions, jnp.float32), (old, old), (new, new)))
