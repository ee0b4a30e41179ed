"""DomainNet's folders and lists, written by the test; and the transfer sets as tfds writes them."""

import dataclasses
import io
import itertools

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from mvcl import augment, data, evaluation, models, training

DOMAINS = ("clipart", "quickdraw", "real")
CLASSES = ("aircraft carrier", "alarm_clock", "ant")
COUNTS = {"train": 4, "test": 2}


def write(root, rng, domains=DOMAINS, without=()):
    """The folder, and the pixels of each image by its path; PNG, so that pixels can be compared."""
    pixels = {}
    for domain in domains:
        for part, count in COUNTS.items():
            lines = []
            for number, name in enumerate(CLASSES):
                for i in range(count if (domain, part, name) not in without else 0):
                    path = f"{domain}/{name}/{domain}_{number:03d}_{part}{i:06d}.png"
                    (root / path).parent.mkdir(parents=True, exist_ok=True)
                    image = rng.integers(0, 256, (5 + i, 4 + number, 3), np.uint8)
                    Image.fromarray(image).save(root / path)
                    pixels[path] = image
                    lines.append(f"{path} {number}")
            (root / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
    return pixels


@pytest.fixture
def pixels(tmp_path, rng):
    """DomainNet's folder at `tmp_path`/raw: the pixels of its images by path."""
    return write(tmp_path / "raw", rng)


def opened(root, **options):
    options = {"classes_per_draw": 3, "domains": DOMAINS, "held_out": "real", **options}
    return data.DomainNet(path=str(root), **options).open()


def path_of(pixels, image):
    return next(path for path, known in pixels.items() if np.array_equal(known, image))


def test_every_list_is_a_split(tmp_path, pixels):
    splits = opened(tmp_path / "raw")
    assert sorted(splits) == sorted([f"{d}/{p}" for d in DOMAINS for p in COUNTS] + ["train", "seen", "test"])
    for domain, part in itertools.product(DOMAINS, COUNTS):
        split = splits[f"{domain}/{part}"]
        assert split.class_names == CLASSES
        assert split.spec.image_shape is None
        found = {path_of(pixels, split.read(row, 0)[0]): int(split.labels[row]) for row in range(len(split))}
        paths = [path for path in pixels if path.startswith(domain) and part in path]
        assert found == {path: CLASSES.index(path.split("/")[1]) for path in paths}
    test = splits["test"]
    found = {path_of(pixels, test.read(row, 0)[0]) for row in range(len(test))}
    assert found == {path for path in pixels if path.startswith("real") and "test" in path}


def corner(views, epoch, index):
    return tuple(np.asarray(image.convert(mode))[:4, :4] for image, mode in views)


def test_example_has_one_image_of_its_class_per_training_domain(tmp_path, pixels):
    train = opened(tmp_path / "raw", draw_seed=3)["train"]
    # 24 training images in two domains: 12 examples of two images, 4 draws of 3 classes
    assert (len(train), train.draws.size) == (12, 3)
    assert (train.spec.view_names, train.class_names) == (("clipart", "quickdraw"), CLASSES)
    seen, rows = set(), np.arange(12)
    for epoch in range(10):
        labels = train.draws.labels(rows, epoch)
        assert all(set(draw) == {0, 1, 2} for draw in labels.reshape(4, 3).tolist())
        for row, label in zip(rows.tolist(), labels):
            paths = [path_of(pixels, image) for image in train.read(row, epoch)]
            for domain, path in zip(train.spec.view_names, paths, strict=True):
                assert path.startswith(f"{domain}/{CLASSES[label]}/")
                assert "train" in path
            seen.add(tuple(paths))
    assert np.array_equal(train.labels, train.draws.labels(rows, 0))
    assert len({tuple(train.draws.labels(rows, epoch)) for epoch in range(10)}) > 5
    # 4 x 4 pairs for each of 3 classes; 40 draws of 16 miss a given pair with probability (15/16)^40 = 0.08
    assert len(seen) > 0.8 * 48
    for seed in (3, 4):
        other = opened(tmp_path / "raw", draw_seed=seed)["train"]
        same = [np.array_equal(a, b) for row in rows for a, b in zip(other.read(row, 7), train.read(row, 7))]
        assert all(same) == (seed == 3)


def test_batches_are_crops_of_the_images_of_a_draw(tmp_path, pixels):
    train, policies = opened(tmp_path / "raw")["train"], [augment.Policy(image_size=8)] * 2
    crop = lambda images, epoch, row: augment.host_crop(images, policies, 3, epoch, row)  # noqa: E731
    batch = next(data.batches(train, batch_size=6, seed=0, crop=crop))
    for place, row in enumerate(batch["index"].tolist()):
        expected = augment.host_crop(train.read(row, 0), policies, 3, 0, row)
        np.testing.assert_array_equal([view[place] for view in batch["images"]], expected)


def test_images_of_one_size_are_cropped_in_the_step(tmp_path):
    source = data.Synthetic(domains=DOMAINS, classes=3, examples=12, image_size=8)
    train = source.open()["train"]
    batch = next(data.batches(train, batch_size=6, seed=0))
    np.testing.assert_array_equal(batch["images"], [train.read(row, 0) for row in batch["index"].tolist()])
    config = training.Config(
        data=source,
        views=training.Views(k=2, policy=augment.Policy(image_size=8)),
        encoder=models.ConvNet(widths=(2, 2)),
        train=training.Train(steps=1, batch_size=6, group=3),
        mesh=training.Mesh(data=1),
        evaluation=evaluation.Domains(linear=evaluation.LinearProbe(epochs=1, batch_size=6, augment=False)),
    )
    assert training.estimate(config).evaluation_flops > 0  # of one image
    training.train(config, tmp_path)
    with np.load(tmp_path / "views.npz") as shown:
        np.testing.assert_array_equal(shown["images"], [train.read(row, 0)[0] for row in range(8)])


def test_an_unreadable_image_is_replaced_by_one_of_its_class(tmp_path, pixels, capsys):
    train = opened(tmp_path / "raw")["train"]
    whole = list(itertools.islice(data.batches(train, batch_size=6, seed=0, crop=corner), 8))
    damaged = "clipart/ant/clipart_002_train000000.png"
    (tmp_path / "raw" / damaged).write_bytes(b"no image")
    stream = data.batches(train, batch_size=6, seed=0, crop=corner, reading=data.Reading(limit=12))
    replaced = 0
    for before, batch in zip(whole, stream):
        for name in ("index", "labels"):
            np.testing.assert_array_equal(batch[name], before[name])
        for label, old, new in zip(batch["labels"], zip(*before["images"]), zip(*batch["images"])):
            if (old[0] == pixels[damaged][:4, :4]).all():
                replaced += 1
                for domain, view in zip(train.spec.view_names, new, strict=True):
                    (known,) = (p for p, x in pixels.items() if (x[:4, :4] == view).all())
                    assert known.startswith(f"{domain}/{CLASSES[label]}/")
                    assert known != damaged
            else:
                np.testing.assert_array_equal(new, old)
    assert replaced
    assert damaged in capsys.readouterr().err
    for path in pixels:
        if path.startswith("clipart/ant/"):
            (tmp_path / "raw" / path).write_bytes(b"no image")
    stream = data.batches(train, batch_size=6, seed=0, crop=corner, reading=data.Reading(limit=12))
    message = r"none of the 16 draws for training example \d+ can be read"
    with pytest.raises(data.CorruptExample, match=message):
        list(itertools.islice(stream, 8))


def test_raises_when_a_class_may_be_its_own_negative(tmp_path, pixels):
    config = training.Config(
        data=data.DomainNet(path=str(tmp_path / "raw"), domains=DOMAINS, held_out="real", classes_per_draw=3),
        views=training.Views(k=2, policy=augment.simclr(image_size=8)),
        encoder=models.ConvNet(widths=(2, 2)),
        train=training.Train(batch_size=6),
        mesh=training.Mesh(data=1),
        evaluation=evaluation.Domains(),
    )
    message = r"6, of which 6 are compared.*--train.group to a number that divides 3"
    with pytest.raises(ValueError, match=message):
        training.prepare(config)
    training.prepare(dataclasses.replace(config, train=training.Train(batch_size=6, group=3)))
    with pytest.raises(ValueError, match=r"classes_per_draw must be .* at most the 3 classes .* got 4"):
        opened(tmp_path / "raw", classes_per_draw=4)


def test_omits_classes_missing_in_a_training_domain(tmp_path, rng):
    write(tmp_path, rng, without={("quickdraw", "train", "alarm_clock")})
    splits = opened(tmp_path, classes_per_draw=2)
    assert set(splits["train"].labels) == {0, 2}
    assert len(splits["train"]) == 8  # 16 images of the two classes in two domains
    assert set(splits["test"].labels) == {0, 1, 2}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("real/ant/missing.png 2", r"real_test\.txt .*line 7: there is no image real/ant/missing\.png"),
        ("../secret/x.png 0", r"line 7 must be DOMAIN/CLASS/FILE NUMBER, got '\.\./secret/x\.png 0'"),
        ("x.png 2", "line 7 must be"),
        ("", r"real_test\.txt is not .* it names no image"),
        ("real/bee/x.png 1", "line 7: class 1 is bee, elsewhere bee is class 1 and class 1 is alarm_clock"),
    ],
)
def test_raises_on_bad_lines(tmp_path, pixels, line, message):
    file = tmp_path / "raw" / "real_test.txt"
    file.write_text(file.read_text() + line + "\n" if line else "\n")
    with pytest.raises(ValueError, match=message):
        opened(tmp_path / "raw")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"root": "none"}, r"data\.path must be DomainNet's folder, got 'none'"),
        ({"domains": ("clipart", "sketch", "real")}, r"lacks sketch_train\.txt; it has clipart_test\.txt"),
        ({"held_out": "sketch"}, "held_out must be one of .*, 'real', '', got 'sketch'"),
        ({"domains": ("clipart", "real")}, "at least 2 domains for training, got clipart"),
    ],
)
def test_raises_on_bad_folders_and_options(tmp_path, pixels, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        opened(**{"root": "raw", **options})


def write_tfds(root, name, splits, classes, shape=(None, None, 3)):
    """A tfds data set of this name; the same images for the same row, from encoded files, so without TensorFlow."""

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = root  # where tfds would look for a description

        def _info(self):
            label = tfds.features.ClassLabel(names=[f"class{i}" for i in range(classes)])
            features = tfds.features.FeaturesDict({"image": tfds.features.Image(shape=shape), "label": label})
            return self.dataset_info_from_configs(features=features, supervised_keys=("image", "label"))

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in splits}

        def _generate_examples(self, split):
            for row in range(splits[split]):
                file = io.BytesIO()
                value = 40 * list(splits).index(split) + row
                Image.fromarray(np.full((4, 3, 3), value, np.uint8)).save(file, "PNG")
                file.seek(0)
                yield row, {"image": file, "label": row % classes}

    Tiny.name = name
    tfds.disable_progress_bar()
    Tiny(data_dir=str(root), file_format="array_record").download_and_prepare()


def test_a_transfer_set_has_its_official_splits(tmp_path):
    write_tfds(tmp_path, "dtd", {"train": 5, "validation": 4, "test": 3}, 3)
    splits = data.TransferImages(name="dtd", directory=str(tmp_path)).open()
    for part, values in (("train", {0, 1, 2, 3, 4, 40, 41, 42, 43}), ("test", {80, 81, 82})):
        split = splits[part]
        read = {int(split.read(row, 0)[0][0, 0, 0]): int(split.labels[row]) for row in range(len(split))}
        assert read == {value: value % 40 % 3 for value in values}
    held = data.TransferImages(name="dtd", directory=str(tmp_path), evaluate="validation").open()
    assert [len(held[part]) for part in ("train", "test")] == [5, 4]  # the official ones
    write_tfds(tmp_path, "cars196", {"train": 12, "test": 1}, 2)  # six images of each of two classes
    splits = data.TransferImages(name="cars196", directory=str(tmp_path), evaluate="validation").open()
    values = [{int(split.read(row, 0)[0][0, 0, 0]) for row in range(len(split))} for split in splits.values()]
    assert [*splits] == ["train", "test"]
    assert (values[0] | values[1], values[0] & values[1], len(values[1])) == (set(range(12)), set(), 2)
    assert splits["test"].labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match="run: mvcl data prepare food101"):
        data.TransferImages(name="food101", directory=str(tmp_path)).open()
    with pytest.raises(ValueError, match=r"data\.name must be one of 'food101', .*, got 'cars'"):
        data.TransferImages(name="cars").open()
