"""Crops on the host, for images of different sizes; the rest of a policy runs on the device."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from mvcl.augment import _random
from mvcl.augment._policy import Policy


def host_crop(
    image: Image.Image | np.ndarray | Sequence[np.ndarray],
    policies: Sequence[Policy],
    seed: int,
    epoch: int,
    index: int,
) -> tuple[np.ndarray, ...]:
    """The k crops of one decoded image, or of k images, resized by Pillow (bicubic); `draw_views` does the rest.

    Crop v depends only on (seed, epoch, index, v) and the image's size: its numbers come from the counter-based
    Philox generator with key (seed, epoch) and counter (0, 0, index, v), independent of processes and workers.
    `draw_views` draws other numbers when it crops.

    Args:
      image: a Pillow image (modes other than L are converted to RGB), or (height, width, 1 or 3) uint8; or a sequence
        of k such arrays, one for each view.
      policies: k of them; view v is cropped by `policies[v]`.
      seed, epoch, index: whole numbers in [0, 2^64).

    Returns:
      k arrays (image_size, image_size, 1 or 3) uint8, of the image_size of each policy.
    """
    if isinstance(image, (np.ndarray, Image.Image)):
        opened = [_opened(image)] * len(policies)
    else:
        opened = [_opened(one) for one in image]
    crops = []
    for view, (policy, picture) in enumerate(zip(policies, opened, strict=True)):
        width, height = picture.size
        if policy.random_crop:
            generator = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, index, view]))
            draws = generator.random(_random.DRAWS["crop"])
            if policy.crop_padding:
                around = [(policy.crop_padding, policy.crop_padding)] * 2 + [(0, 0)] * (picture.mode == "RGB")
                picture = Image.fromarray(np.pad(np.asarray(picture), around, mode="reflect"))
                box = _random.padded_box(np, draws, height, width, policy.crop_padding)
            else:
                box = _random.box(np, draws, height, width, policy.crop_scale, policy.crop_ratio)
            left, upper, right, lower = box.tolist()
        else:
            left, upper, right, lower = _random.center_box(height, width, policy.center_fraction)
        size = (policy.image_size, policy.image_size)
        crop = np.asarray(picture.resize(size, Image.Resampling.BICUBIC, box=(left, upper, right, lower)))
        crops.append(crop.reshape(*size, -1))
    return tuple(crops)


def _opened(image: Image.Image | np.ndarray) -> Image.Image:
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] not in (1, 3):
            raise ValueError(f"image must be (height, width, 1 or 3) uint8, got {image.shape} {image.dtype}")
        return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    return image if image.mode in ("L", "RGB") else image.convert("RGB")
