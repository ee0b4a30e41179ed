"""FGVC-Aircraft in the layout of its official archive."""

import numpy as np
import pytest
from PIL import Image

from mvcl import data

VARIANTS = ("707-320", "A300B4", "Hawk T1")
LISTS = {
    "images_variant_trainval.txt": [("0000001", "Hawk T1"), ("0000002", "707-320"), ("0000003", "A300B4")],
    "images_variant_test.txt": [("0000004", "A300B4"), ("0000005", "Hawk T1")],
}


def write(root, lists=LISTS):
    """The unpacked archive, with images 9 x 30 of one grey level, their number, above a white banner of 20 rows."""
    folder = root / "fgvc-aircraft-2013b" / "data"
    (folder / "images").mkdir(parents=True)
    (folder / "variants.txt").write_text("\n".join(VARIANTS) + "\n")
    for name, rows in lists.items():
        (folder / name).write_text("".join(f"{image} {variant}\n" for image, variant in rows))
    for number in range(1, 6):
        pixels = np.full((50, 9, 3), 255, np.uint8)
        pixels[:-20] = 10 * number
        # Lossless; readers go by content.
        Image.fromarray(pixels).save(folder / "images" / f"{number:07d}.jpg", "PNG")
    return folder


def opened(root, **options):
    return data.TransferImages(name="aircraft", directory=str(root), **options).open()


def test_variants_of_the_official_lists_without_the_banner(tmp_path):
    folder = write(tmp_path)
    for split, rows in zip(opened(tmp_path).values(), LISTS.values(), strict=True):
        assert split.class_names == VARIANTS
        assert [VARIANTS[label] for label in split.labels] == [variant for _, variant in rows]
        for row, (image, _) in enumerate(rows):
            found = split.read(row, 0)[0]
            np.testing.assert_array_equal(found, np.full((30, 9, 3), 10 * int(image), np.uint8))
    for name, (image, variant) in zip(("train", "val"), LISTS["images_variant_trainval.txt"]):
        (folder / f"images_variant_{name}.txt").write_text(f"{image} {variant}\n")
    held = opened(tmp_path, evaluate="validation")
    assert [VARIANTS[split.labels[0]] for split in held.values()] == ["Hawk T1", "707-320"]
    prepare = data.PrepareTransfer(names=("aircraft",), directory=str(tmp_path))
    assert prepare.run() == tmp_path / "fgvc-aircraft-2013b"


def test_raises_on_an_unknown_variant(tmp_path):
    write(tmp_path, LISTS | {"images_variant_test.txt": [("0000004", "Hawk")]})
    message = r"test\.txt is not a readable list of .* again: 'Hawk' is not in list"
    with pytest.raises(ValueError, match=message):
        opened(tmp_path)
