"""Views of images: pure functions for jit and vmap, and policies that compose them."""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.augment._colour import RAND_AUGMENT, RAND_AUGMENT_TIMM, color_jitter, grayscale, normalise
    from mvcl.augment._colour import rand_augment_op, solarise
    from mvcl.augment._geometry import crop_and_resize, cutmix, gaussian_blur, mixup, random_erasing
    from mvcl.augment._geometry import random_mix
    from mvcl.augment._policy import CIFAR_MEAN, CIFAR_STD, IMAGENET_MEAN, IMAGENET_STD, POLICIES, Policy
    from mvcl.augment._policy import byol_global1, byol_global2, digits, dsf, evaluation, moco_v2, simclr
    from mvcl.augment._views import ByKind, DrawnViews, apply_policy, by_shape, draw_views, host_crop
    from mvcl.augment._views import view_key

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
