"""Views are functions of (seed, epoch, index, view), independent of batch, devices and pieces."""

import dataclasses
import functools
import math
import re

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from parametrize import some

from mvcl import augment

EVERYTHING = augment.byol_global2(
    image_size=12, blur_probability=0.5, solarise_probability=0.5, rand_augment_ops=1
)
LIGHT = augment.Policy(image_size=12)  # crops and flips: little to compile
CONTRAST = dataclasses.replace(LIGHT, contrast=0.5)  # with a sum over the image
IMAGES = np.random.default_rng(0).integers(0, 256, (16, 14, 13, 3), dtype=np.uint8)
EPOCH = np.arange(16) % 3
INDEX = np.arange(16) * 7 + 3


@functools.cache
def program(policies):
    return jax.jit(lambda *data: augment.draw_views(policies, *data))


def draw(policies, images=IMAGES, seed=5, epoch=EPOCH, index=INDEX):
    return jax.tree.map(np.asarray, program(tuple(policies))(images, seed, epoch, index))


@pytest.fixture(scope="module")
def views():
    return draw([EVERYTHING] * 3)


def test_view_depends_on_its_key_only(views):
    """One view at a time, without the rest of the batch."""
    apply = jax.jit(lambda key, image: augment.apply_policy(EVERYTHING, key, image))
    for i, v in [(0, 0), (3, 2), (15, 1)]:
        alone = apply(augment.view_key(5, EPOCH[i], INDEX[i], v), IMAGES[i])
        np.testing.assert_allclose(views[i, v], alone, atol=2e-5)


def test_views_depend_on_seed_epoch_index_and_view(views):
    for other in ({"seed": 6}, {"epoch": EPOCH + 1}, {"index": INDEX + 1}):
        assert np.abs(draw([EVERYTHING] * 3, **other) - views).max((2, 3, 4)).min() > 0.01
    assert np.abs(views[:, 0] - views[:, 1]).max((1, 2, 3)).min() > 0.01
    keys = [jax.random.key_data(augment.view_key(*parts)) for parts in np.ndindex(2, 3, 4, 5)]
    assert len({tuple(np.asarray(key).tolist()) for key in keys}) == 2 * 3 * 4 * 5


def test_view_keys_do_not_depend_on_the_default_generator():
    expected = jax.random.key_data(augment.view_key(1, 2, 3, 4))
    with jax.default_prng_impl("rbg"):
        np.testing.assert_array_equal(jax.random.key_data(augment.view_key(1, 2, 3, 4)), expected)


def test_each_view_has_its_own_policy():
    gray = dataclasses.replace(LIGHT, grayscale_probability=1.0, mean=(0.5,), std=(0.25,))
    mixed = draw([gray, LIGHT, gray])
    np.testing.assert_allclose(mixed[:, 1], draw([LIGHT] * 4)[:, 1], atol=2e-5)
    for v in (0, 2):
        np.testing.assert_array_equal(mixed[:, v, ..., 0], mixed[:, v, ..., 1])
    assert np.abs(mixed[:, 0] - mixed[:, 2]).max((1, 2, 3)).min() > 0.01


def largest(compiled):
    """Entries of the largest float32 array of a device's program, as XLA misses FLOPs of its fused products."""
    shapes = re.findall(r"f32\[([\d,]+)\]", compiled.as_text())
    return max(math.prod(map(int, shape.split(","))) for shape in shapes)


def on_devices(policy, devices):
    mesh = jax.make_mesh((devices,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])
    rows = NamedSharding(mesh, PartitionSpec("data"))
    shardings = (rows, NamedSharding(mesh, PartitionSpec()), rows, rows)
    placed = tuple(map(jax.device_put, (IMAGES, np.int32(5), EPOCH, INDEX), shardings))
    program = jax.jit(lambda *data: augment.draw_views([policy] * 3, *data), out_shardings=rows)
    compiled = program.lower(*placed).compile()
    return np.asarray(compiled(*placed)), compiled


@pytest.mark.parametrize("pieces", some([False, True], fast=[True]))
@pytest.mark.parametrize("policy", some([CONTRAST, EVERYTHING], fast=[CONTRAST]), ids=["contrast", "all"])
def test_devices_share_the_work_with_equal_results(policy, pieces, monkeypatch):
    """Each device computes its rows and gathers none; all numbers of devices give the same bits."""
    if pieces:
        monkeypatch.setattr("mvcl.augment._views._CACHE_BYTES", 1)
    expected, one = on_devices(policy, 1)
    drawn, compiled = on_devices(policy, 8)
    np.testing.assert_array_equal(drawn, expected)
    assert compiled.cost_analysis()["flops"] <= one.cost_analysis()["flops"] / 8 * 1.02
    assert largest(compiled) <= largest(one) / 8
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in compiled.as_text()


def test_views_of_several_sizes_are_those_of_each_size_alone():
    """Each view is what it is beside views of its own size, on one device and in order."""
    small = dataclasses.replace(LIGHT, image_size=6)
    mixed = draw([LIGHT, small, LIGHT, small])
    assert [view.shape for view in mixed] == [(16, s, s, 3) for s in (12, 6, 12, 6)]
    large, local = draw([LIGHT] * 4), draw([small] * 4)
    for place, whole in enumerate((large, local, large, local)):
        np.testing.assert_allclose(mixed[place], whole[:, place], atol=2e-5)
    crops = tuple(np.zeros((16, s, s, 3), np.uint8) for s in (12, 6))
    of_crops = jax.eval_shape(program((LIGHT, small)), crops, 5, EPOCH, INDEX)
    assert [view.shape[1] for view in of_crops] == [12, 6]
    with pytest.raises(ValueError, match="images must be crops of 6 x 6 pixels, got 12 x 12"):
        draw([LIGHT, small], (crops[0], crops[0]))


def test_each_view_has_its_own_image():
    several, policies = np.stack([IMAGES, IMAGES[::-1], 255 - IMAGES], 1), [LIGHT, CONTRAST, LIGHT]
    alone = [draw(policies, several[:, v])[:, v] for v in range(3)]
    np.testing.assert_allclose(draw(policies, several), np.stack(alone, 1), atol=2e-5)


@pytest.mark.parametrize(
    ("policies", "images", "index", "message"),
    [
        ([], IMAGES, INDEX, "policies must be at least one, got none"),
        ([LIGHT], IMAGES[0], INDEX, r"images must be \(n, height, width, channels\), .* got \(14, 13, 3\)"),
        ([LIGHT] * 2, (IMAGES,) * 3, INDEX, r"or a tuple of 2 .* got \(16, 14, 13, 3\), "),
        ([LIGHT] * 2, IMAGES[:, None], INDEX, r"\(n, 2, ...\) or a tuple of 2 .* got \(16, 14, 13, 3\)"),
        ([LIGHT], (IMAGES,), INDEX, "images must be crops of 12 x 12 pixels, got 14 x 13"),
        ([LIGHT], IMAGES, INDEX[1:], r"index must be \(16,\), one for each image, got \(15,\)"),
    ],
)
def test_raises_on_bad_input(policies, images, index, message):
    with pytest.raises(ValueError, match=message):
        augment.draw_views(policies, images, 0, EPOCH, index)
