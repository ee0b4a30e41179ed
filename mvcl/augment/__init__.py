"""Views of images: pure functions for jit and vmap, and policies that compose them."""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.augment._colour import (
        RAND_AUGMENT,
        autocontrast,
        brightness,
        color_jitter,
        contrast,
        equalize,
        grayscale,
        hue,
        invert,
        normalise,
        posterize,
        rand_augment_op,
        saturation,
        sharpness,
        solarise,
    )
    from mvcl.augment._geometry import (
        affine,
        crop_and_resize,
        gaussian_blur,
        horizontal_flip,
        rotate,
        shear_x,
        shear_y,
        translate_x,
        translate_y,
    )
    from mvcl.augment._policy import (
        CIFAR_MEAN,
        CIFAR_STD,
        IMAGENET_MEAN,
        IMAGENET_STD,
        POLICIES,
        Policy,
        byol_global1,
        byol_global2,
        digits,
        dsf,
        evaluation,
        moco_v2,
        policy,
        simclr,
    )
    from mvcl.augment._random import (
        cutmix,
        erase,
        mixup,
        rand_augment,
        random_blur,
        random_box,
        random_color_jitter,
        random_erasing,
        random_flip,
        random_grayscale,
        random_mix,
        random_resized_crop,
        random_solarise,
        smooth_targets,
    )
    from mvcl.augment._views import (
        DrawnViews,
        apply_policy,
        by_shape,
        draw_views,
        host_crop,
        in_order_of_views,
        view_key,
    )

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
