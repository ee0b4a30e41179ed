"""FGVC-Aircraft from a small archive in the layout of the official one."""

import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from mvcl import data

VARIANTS = ("707-320", "A300B4", "Hawk T1")
LISTS = {
    "images_variant_trainval.txt": [("0000001", "Hawk T1"), ("0000002", "707-320"), ("0000003", "A300B4")],
    "images_variant_test.txt": [("0000004", "A300B4"), ("0000005", "Hawk T1")],
}


def archive(path, lists=LISTS, extra=()):
    """tar.gz of images 9 x 30 of one grey level, their number, above a white banner of 20 rows."""
    files = {"variants.txt": "\n".join(VARIANTS) + "\n"}
    files |= {
        name: "".join(f"{image} {variant}\n" for image, variant in rows) for name, rows in lists.items()
    }
    content = {f"fgvc-aircraft-2013b/data/{name}": text.encode() for name, text in files.items()}
    for image in {image for rows in LISTS.values() for image, _ in rows}:
        pixels = np.full((50, 9, 3), 255, np.uint8)
        pixels[:-20] = 10 * int(image)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")  # lossless; readers go by content
        content[f"fgvc-aircraft-2013b/data/images/{image}.jpg"] = buffer.getvalue()
    with tarfile.open(path, "w:gz") as file:
        for name, raw in [*content.items(), *extra]:
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            file.addfile(info, io.BytesIO(raw))
    return str(path)


def prepare(tmp_path, **options):
    return data.PrepareTransfer(names=("aircraft",), directory=str(tmp_path / "root"), **options).run()


def test_variants_of_the_official_lists_without_the_banner(tmp_path):
    folder = prepare(tmp_path, aircraft=archive(tmp_path / "a.tar.gz"))
    assert folder == tmp_path / "root" / "fgvc-aircraft-2013b"
    splits = data.TransferImages(name="aircraft", directory=str(tmp_path / "root")).open()
    for split, rows in zip((splits["train"], splits["test"]), LISTS.values(), strict=True):
        assert split.class_names == VARIANTS
        assert [VARIANTS[label] for label in split.labels] == [variant for _, variant in rows]
        for row, (image, _) in enumerate(rows):
            found = split.read(row, 0)[0]
            np.testing.assert_array_equal(found, np.full((30, 9, 3), 10 * int(image), np.uint8))
    assert prepare(tmp_path) == folder  # it is there: no archive is needed


def test_raises_on_what_is_not_the_archive(tmp_path):
    with pytest.raises(
        ValueError, match=r"aircraft is not in tfds: download fgvc-aircraft-2013b\.tar\.gz of"
    ):
        prepare(tmp_path)
    with pytest.raises(
        ValueError, match=r"not prepared in .* --names aircraft --aircraft fgvc-aircraft-2013b"
    ):
        data.TransferImages(name="aircraft", directory=str(tmp_path)).open()
    (tmp_path / "torn.tar.gz").write_bytes(b"no archive")
    outside = archive(tmp_path / "outside.tar.gz", extra=[("../outside.txt", b"x")])
    for path in (str(tmp_path / "torn.tar.gz"), outside):
        with pytest.raises(ValueError, match=rf"{path} is not a readable copy"):
            prepare(tmp_path, aircraft=path)
    assert not list((tmp_path / "root").iterdir())


def test_raises_on_an_unknown_variant(tmp_path):
    lists = LISTS | {"images_variant_test.txt": [("0000004", "Hawk")]}
    with pytest.raises(
        ValueError, match=r"test\.txt is not a readable list of .* again: 'Hawk' is not in list"
    ):
        prepare(tmp_path, aircraft=archive(tmp_path / "a.tar.gz", lists))


def test_names_a_corrupt_image(tmp_path):
    folder = prepare(tmp_path, aircraft=archive(tmp_path / "a.tar.gz"))
    (folder / "data" / "images" / "0000002.jpg").write_bytes(b"no image")
    split = data.TransferImages(name="aircraft", directory=str(tmp_path / "root")).open()["train"]
    with pytest.raises(data.CorruptExample, match=r"0000002\.jpg cannot be read"):
        split.read(1, 0)
