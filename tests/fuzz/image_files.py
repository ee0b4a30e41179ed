"""Images, record files and recordings to damage: valid files of each kind, hostile ones, and how a user reads them."""

import io
import json
import pickle
import struct
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from mutations import Format
from PIL import Image

from mvcl import augment, data

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
import test_eeg as recordings  # writes recordings in WFDB's and EDF's formats

RNG = np.random.default_rng(0)
CROPS = (augment.Policy(image_size=16), augment.Policy(image_size=16, random_crop=False))


def replaced(name, content):
    """A hostile folder: its file `name` has other content, bytes or what a function of the old ones returns."""

    def craft(folder):
        file = folder / name
        file.write_bytes(content(file.read_bytes()) if callable(content) else content)
        return file

    return craft


def read_rows(splits):
    """All rows of all splits; images are cropped as in training."""
    for split in splits.values():
        for row in range(len(split)):
            arrays = split.read(row, 0)
            if not split.spec.given:
                augment.host_crop(arrays[0], CROPS, 0, 0, row)


# Images


def pixels(height, width, channels=3):
    smooth = np.add.outer(np.arange(height) * 3, np.arange(width) * 5)[..., None] + 40 * np.arange(channels)
    return (smooth + RNG.integers(0, 40, smooth.shape)).astype(np.uint8).squeeze()


def write_folder(folder, kinds):
    """An image of each kind, of two classes, for training; one more of each class for the test."""
    for number, (name, save) in enumerate(kinds.items()):
        for part, label in (("train", number % 2), *([("test", number)] if number < 2 else [])):
            place = folder / part / "ab"[label]
            place.mkdir(parents=True, exist_ok=True)
            save(Image.fromarray(pixels(40 + number, 30)), place / name)


def read_folder(folder):
    read_rows(data.Folder(path=str(folder)).open())


def saved(mode="RGB", **options):
    return lambda image, path: image.convert(mode).save(path, **options)


EXIF = Image.Exif()
EXIF[0x010E], EXIF[0x0112] = "a description", 6
JPEGS = {
    "baseline.jpg": saved(),
    "progressive.jpg": saved(progressive=True, subsampling=0),
    "grey.jpg": saved("L"),
    "cmyk.jpg": saved("CMYK"),
    "exif.jpeg": saved(exif=EXIF, icc_profile=bytes(300), restart_marker_blocks=2, comment="a comment"),
}


def jpeg(width, height, mode="RGB", **options):
    buffer = io.BytesIO()
    Image.new(mode, (width, height), 77 if mode == "L" else (10, 200, 30, 4)[: len(mode)]).save(
        buffer, "jpeg", **options
    )
    return buffer.getvalue()


def states(width, height):
    """The image with another size in its frame header."""

    def change(raw):
        at = max(raw.find(b"\xff\xc0"), raw.find(b"\xff\xc2"))
        return raw[: at + 5] + struct.pack(">HH", height, width) + raw[at + 9 :]

    return change


def scans(width, height, count):
    """An image whose last scan comes `count` times more; each decodes all pixels again."""
    raw = jpeg(width, height, progressive=True, quality=95, subsampling=0)
    last = raw.rindex(b"\xff\xda")
    return raw[:-2] + raw[last:-2] * count + b"\xff\xd9"


def segments(marker, count, body=b""):
    """The image with segments of a kind before its others."""
    return lambda raw: raw[:2] + (marker + struct.pack(">H", 2 + len(body)) + body) * count + raw[2:]


JPEG_BOMBS = {
    f"{what}: {name}": replaced(f"train/{label}/{name}", content)
    for label, name in (("a", "baseline.jpg"), ("b", "progressive.jpg"))
    for what, content in {
        "65,500 x 65,500 pixels stated": states(65_500, 65_500),
        "60,000 x 60,000 pixels stated": states(60_000, 60_000),
        "9,000 x 9,000 pixels stated": states(9_000, 9_000),
        "5,700 x 5,700 pixels stated": states(5_700, 5_700),
        "no rows stated": states(30, 0),
        "no columns stated": states(0, 30),
        "65,500 x 1 pixels": lambda raw: jpeg(65_500, 1),
        "1 x 65,500 pixels": lambda raw: jpeg(1, 65_500, progressive=True),
        "5,790 x 5,790 pixels": lambda raw: jpeg(5_790, 5_790, progressive=True),
        "5,790 x 5,790 CMYK pixels": lambda raw: jpeg(5_790, 5_790, "CMYK", progressive=True, quality=95),
        "8,000 x 8,000 pixels": lambda raw: jpeg(8_000, 8_000, "L"),
        "20 scans of 5,700 x 5,700 pixels": lambda raw: scans(5_700, 5_700, 10),
        "2,000 scans of 5,700 x 5,700 pixels": lambda raw: scans(5_700, 5_700, 2000),
        "20,000 scans of 40 x 40 pixels": lambda raw: scans(40, 40, 20_000),
        "10^5 comments": segments(b"\xff\xfe", 100_000),
        "10^4 segments of an ICC profile": segments(b"\xff\xe2", 10_000, b"ICC_PROFILE\0\1\xff" + bytes(1000)),
        "10^4 tables": segments(b"\xff\xdb", 10_000, b"\0" + bytes(range(1, 65))),
        "an endless directory in EXIF": segments(b"\xff\xe1", 1, b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + bytes(60_000)),
        "2^32 pictures": segments(
            b"\xff\xe2", 1, b"MPF\0MM\0*\0\0\0\x08\0\1\xb0\1\0\4\0\0\0\1\xff\xff\xff\xff\0\0\0\0"
        ),
        "10 MB of zeros after a header": lambda raw: raw[:100] + bytes(10 << 20),
        "10 MB of entropy": lambda raw: raw[:-2] + RNG.bytes(10 << 20),
    }.items()
}  # fmt: skip


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def chunks(raw):
    """(kind, body) of the chunks of a PNG file."""
    at, found = 8, []
    while at + 8 <= len(raw):
        size, kind = struct.unpack_from(">I4s", raw, at)
        found.append((kind, raw[at + 8 : at + 8 + size]))
        at += 12 + size
    return found


def joined(parts):
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, body) for kind, body in parts)


def repack_png(raw, change, rng):
    """Changes the content of a chunk, below zlib's compression for pixels, and writes the checksums again."""
    parts = chunks(raw)
    chosen = rng.randrange(len(parts))
    kind, body = parts[chosen]
    below = kind == b"IDAT" and rng.random() < 0.7
    body = zlib.compress(change(zlib.decompress(body))) if below else change(body)
    return joined([*parts[:chosen], (kind, body), *parts[chosen + 1 :]])


def png(width, height, depth=8, color=2, interlaced=False, before=()):
    """One colour of any size; rows are compressed as they are made."""
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [
            (0, 0, 8, 8),
            (4, 0, 8, 8),
            (0, 4, 4, 8),
            (2, 0, 4, 4),
            (0, 2, 2, 4),
            (1, 0, 2, 2),
            (0, 1, 1, 2),
        ]
    packer, packed = zlib.compressobj(9), []
    for left, top, right, down in passes:
        columns, rows = -(-(width - left) // right), -(-(height - top) // down)
        if columns > 0:
            row = b"\0" + b"\x55" * ((columns * bits + 7) // 8)
            packed += [packer.compress(row) for _ in range(rows)]
    packed.append(packer.flush())
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    palette = [(b"PLTE", bytes(range(256)) * 3)] if color == 3 else []
    return joined([(b"IHDR", head), *before, *palette, (b"IDAT", b"".join(packed)), (b"IEND", b"")])


def saved_png(*size, **options):
    return lambda image, path: path.write_bytes(png(*size, **options))


PNGS = {
    "rgb.png": saved(),
    "grey.png": saved("L"),
    "palette.png": lambda image, path: image.quantize(16).save(path, transparency=3),
    "deep.png": saved_png(20, 30, depth=16, color=6),
    "interlaced.png": saved_png(21, 33, depth=8, color=6, interlaced=True),
    "interlaced bits.png": saved_png(21, 33, depth=2, color=3, interlaced=True),
    "text.png": saved_png(9, 9, before=[
        (b"tEXt", b"Title\0a title"), (b"zTXt", b"Comment\0\0" + zlib.compress(b"a comment")),
        (b"iTXt", b"XML\0\1\0en\0x\0" + zlib.compress(b"<x/>")), (b"iCCP", b"p\0\0" + zlib.compress(bytes(200))),
        (b"gAMA", bytes(4)), (b"pHYs", bytes(9)), (b"eXIf", EXIF.tobytes()),
    ]),
    "frames.png": lambda image, path: image.save(path, save_all=True, append_images=[image.rotate(90)]),
}  # fmt: skip


def zeros(size, before=b""):
    """A zlib stream of `before` and then `size` zeros."""
    packer = zlib.compressobj(9)
    parts = [packer.compress(before), *(packer.compress(bytes(1 << 24)) for _ in range(size >> 24))]
    return b"".join([*parts, packer.flush()])


def stated(width, height, depth=8, color=2, interlaced=0, pixels=b""):
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    return joined([(b"IHDR", head), (b"IDAT", zlib.compress(pixels)), (b"IEND", b"")])


PNG_BOMBS = {
    what: replaced("train/a/rgb.png", content)
    for what, content in {
        "60,000 x 60,000 pixels stated": lambda raw: stated(60_000, 60_000),
        "2^31 - 1 pixels a side stated": lambda raw: stated(2**31 - 1, 2**31 - 1),
        "2^32 - 1 x 1 pixels stated": lambda raw: stated(2**32 - 1, 1),
        "33,554,432 x 1 pixels": lambda raw: png(1 << 25, 1),
        "1 x 1,000,000 pixels": lambda raw: png(1, 1_000_000),
        "65,535 x 1 pixels": lambda raw: png(65_535, 1),
        "1 x 65,535 pixels, interlaced": lambda raw: png(1, 65_535, interlaced=True),
        "no pixels": lambda raw: stated(0, 0),
        "5,792 x 5,792 pixels": lambda raw: png(5792, 5792),
        "5,792 x 5,792 pixels of 8 bytes, interlaced": lambda raw: png(5792, 5792, 16, 6, interlaced=True),
        "5,792 x 5,792 bits, interlaced": lambda raw: png(5792, 5792, 1, 0, interlaced=True),
        "5,792 x 5,792 deep greys": lambda raw: png(5792, 5792, 16, 0),
        "6,000 x 6,000 pixels": lambda raw: png(6000, 6000),
        "12,000 x 12,000 pixels": lambda raw: png(12_000, 12_000, 1, 0),
        "14,000 x 14,000 pixels": lambda raw: png(14_000, 14_000, 1, 0),
        "4 GB for 100 pixels": lambda raw: joined(
            [(b"IHDR", struct.pack(">IIBBBBB", 10, 10, 8, 2, 0, 0, 0)), (b"IDAT", zeros(1 << 32)), (b"IEND", b"")]
        ),
        "a text of 2 GB": lambda raw: png(9, 9, before=[(b"zTXt", b"x\0\0" + zeros(2 << 30))]),
        "an international text of 2 GB": lambda raw: png(9, 9, before=[(b"iTXt", b"x\0\1\0\0\0" + zeros(2 << 30))]),
        "a profile of 2 GB": lambda raw: png(9, 9, before=[(b"iCCP", b"x\0\0" + zeros(2 << 30))]),
        "500 texts of 1 MB": lambda raw: png(9, 9, before=[(b"zTXt", b"x\0\0" + zeros(1 << 20))] * 500),
        "10^5 texts": lambda raw: png(9, 9, before=[(b"tEXt", b"x\0y")] * 100_000),
        "a chunk of 2 GB": lambda raw: png(9, 9)[:33] + b"\x7f\xff\xff\xffIDAT" + bytes(100),
        "2^32 - 1 frames": lambda raw: png(9, 9, before=[(b"acTL", b"\xff" * 8)]),
        "10^5 frames": lambda raw: png(9, 9, before=[(b"acTL", struct.pack(">II", 100_000, 0))] + [
            (b"fcTL", struct.pack(">IIIIIHHBB", i, 9, 9, 0, 0, 0, 0, 0, 0)) for i in range(100_000)
        ]),
        "many empty blocks": lambda raw: joined([
            (b"IHDR", struct.pack(">IIBBBBB", 10, 10, 8, 2, 0, 0, 0)), *[(b"IDAT", b"")] * 100_000, (b"IEND", b"")
        ]),
        "an unknown depth": lambda raw: stated(9, 9, depth=7),
        "an unknown colour": lambda raw: stated(9, 9, color=5),
        "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) (w) file\n",
        "PSD": b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 9, 9, 8, 3) + bytes(2000),
        "ICO": b"\0\0\1\0\1\0\0\0\0\0\0\0 \0\xff\xff\xff\x7f\x16\0\0\0" + bytes(100),
    }.items()
}  # fmt: skip
OTHERS = {
    "rle.bmp": saved("P"), "bits.bmp": saved("1"), "rgb.bmp": saved(), "frames.gif.webp": saved(format="webp"),
    "lossless.webp": saved(format="webp", lossless=True), "binary.ppm": saved(), "grey.ppm": saved("L", format="ppm"),
    "lzw.tif": saved(compression="tiff_lzw"), "plain.tif": saved(), "deflate.tiff": saved(compression="tiff_deflate"),
    "jpeg.tiff": saved(compression="jpeg"), "a gif.png": saved("P", format="gif"),
}  # fmt: skip


def tiff(width, height, tags=()):
    """A TIFF file of one compressed strip or tile, which has no bytes of pixels."""
    entries = {256: width, 257: height, 258: 8, 259: 8, 262: 1, 273: 8, 277: 1, 278: height, 279: 100}
    entries |= dict(tags)
    body = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(entries.items()))
    return (
        b"II*\0" + struct.pack("<I", 8 + 200) + bytes(200) + struct.pack("<H", len(entries)) + body + bytes(4)
    )


def bmp(side, depth, colors):
    """Headers of a BMP file; with colours, of one whose rows are runs."""
    start, packed = (1078, 1) if colors else (54, 0)
    head = struct.pack("<IIIIiiHHII", 99, 0, start, 40, side, side, 1, depth, packed, 0)
    return b"BM" + head + struct.pack("<iiII", 0, 0, colors, 0)


def gif(side):
    """A GIF file of a screen with a frame of 65,535 pixels a side, which has no bytes of pixels."""
    screen = b"GIF89a" + struct.pack("<HH", side, side) + b"\x80\0\0" + bytes(6)
    return screen + b"," + struct.pack("<HHHH", 0, 0, 65_535, 65_535) + b"\0\x08\0;"


OTHER_BOMBS = {
    what: replaced("train/b/bits.bmp", content)
    for what, content in {
        "TIFF, 60,000 x 60,000 pixels stated": tiff(60_000, 60_000),
        "TIFF, 5,700 x 5,700 pixels stated": tiff(5_700, 5_700),
        "TIFF, a tile of 60,000 x 60,000 pixels": tiff(9, 9, {322: 60_000, 323: 60_000, 324: 8, 325: 100}),
        "BMP, 60,000 x 60,000 pixels stated": bmp(60_000, 24, 0),
        "BMP, 5,700 x 5,700 pixels stated": bmp(5_700, 24, 0),
        "BMP, runs": bmp(5_700, 8, 256) + bytes(1024) + b"\xff\x07" * 140_000,
        "GIF, 65,535 x 65,535 pixels stated": gif(65_535),
        "GIF, a frame larger than the screen": gif(9),
        "PPM, 60,000 x 60,000 pixels stated": b"P6 60000 60000 255\n" + bytes(100),
        "PPM, 10^400 pixels stated": b"P6 " + b"9" * 400 + b" 9 255\n" + bytes(100),
        "PPM, text": b"P3 5700 5700 255\n" + b"1 " * 1000,
        "WebP, 16,383 x 16,383 pixels stated": b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\xff\xff\xff\x0f" + bytes(8),
    }.items()
}  # fmt: skip


# Record files of tfds


def write_tfds(folder):
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    classes = ["ox", "ass", "cow"]
    kinds = {
        "plain": tfds.features.Tensor(shape=(6, 5, 3), dtype=np.uint8),
        "encoded": tfds.features.Image(shape=(None, None, 3)),
    }
    with tfds.core.registered.skip_registration():

        class Tiny(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version("1.0.0")
            pkg_dir_path = folder  # where tfds would look for a description

            def _info(self):
                features = {"image": kinds[self.name], "label": tfds.features.ClassLabel(names=classes)}
                return tfds.core.DatasetInfo(
                    builder=self,
                    features=tfds.features.FeaturesDict(features),
                    supervised_keys=("image", "label"),
                )

            def _split_generators(self, dl_manager):
                return {"train": self._generate_examples(9), "test": self._generate_examples(3)}

            def _generate_examples(self, count):
                for row in range(count):
                    image = pixels(6, 5)
                    buffer = io.BytesIO()
                    Image.fromarray(image).save(buffer, "png")
                    buffer.seek(0)
                    yield row, {"image": image if self.name == "plain" else buffer, "label": row % 3}

    for name in kinds:
        Tiny.name = name
        Tiny(data_dir=str(folder), file_format="array_record").download_and_prepare()
    for lock in [*folder.glob("*.lock"), *folder.glob(".*")]:
        lock.unlink()


def read_tfds(folder):
    for name in ("plain", "encoded"):
        read_rows(data.Tfds(name=name, directory=str(folder)).open())


def records(name, *content, group=1):
    """Other records under a name: (content or size in zeros, how many)."""

    def craft(folder):
        file = sorted(folder.rglob(name))[0]
        writer = ArrayRecordWriter(str(file), f"group_size:{group}")
        for record, times in content:
            for _ in range(times):
                writer.write(bytes(record) if isinstance(record, int) else record)
        writer.close()
        return file

    return craft


def edited(name, change, among="**"):
    """JSON that a function changes in place, or whose content it returns."""

    def craft(folder):
        file = sorted(folder.glob(f"{among}/{name}"))[0]
        tree = json.loads(file.read_text())
        other = change(tree)
        file.write_text(json.dumps(tree if other is None else other))
        return file

    return craft


def set_feature(key, value):
    """features.json with another entry of the image or the label."""

    def change(tree):
        def visit(node):
            for inner, found in list(node.items()):
                if inner == key:
                    node[inner] = value
                elif isinstance(found, dict):
                    visit(found)

        visit(tree)

    return edited("features.json", change)


def set_lengths(*lengths):
    def change(tree):
        for split in tree["splits"]:
            split["shardLengths"] = list(lengths)

    return edited("dataset_info.json", change)


TRAIN = "encoded-train.array_record*"
TFDS = {
    "a record of 512 MB": records(TRAIN, (1 << 29, 1)),
    "9 records of 400 MB": records(TRAIN, (400 << 20, 9)),
    "9 records of 100 MB": records(TRAIN, (100 << 20, 9)),
    "9 records of 50 MB in a chunk": records(TRAIN, (50 << 20, 9), group=9),
    "no records": records(TRAIN),
    "10^5 records": records(TRAIN, (b"x", 100_000)),
    "empty records": records(TRAIN, (b"", 9)),
    "records of noise": records(TRAIN, (RNG.bytes(100), 9)),
    "2^40 records stated": set_lengths(str(2**40)),
    "-1 records stated": set_lengths("-1"),
    "2^63 records stated": set_lengths(str(2**63 - 1)),
    "more than 2^64 records stated": set_lengths("9" * 30),
    "8 records stated": set_lengths("8"),
    "10^5 shards stated": set_lengths(*["9"] * 100_000),
    "no shards stated": set_lengths(),
    "no splits": edited("dataset_info.json", lambda tree: tree.update(splits=[])),
    "a list": edited("dataset_info.json", lambda tree: [tree]),
    "a path outside": edited(
        "dataset_info.json", lambda tree: [s.update(filepathTemplate="/etc/{SPLIT}") for s in tree["splits"]] and None
    ),
    "another format": edited("dataset_info.json", lambda tree: tree.update(fileFormat="tfrecord")),
    "Parquet": edited("dataset_info.json", lambda tree: tree.update(fileFormat="parquet")),
    "another image": edited("dataset_info.json", lambda tree: tree.update(supervisedKeys={"input": "x"})),
    "10^12 classes": set_feature("numClasses", str(10**12)),
    "2 classes": set_feature("numClasses", "2"),
    "-1 classes": set_feature("numClasses", "-1"),
    "images of 10^6 a side": set_feature("dimensions", ["1000000", "1000000", "3"]),
    "images of one axis": set_feature("dimensions", ["90"]),
    "images of 4 channels": set_feature("dimensions", ["-1", "-1", "4"]),
    "images of negative size": set_feature("dimensions", ["-5", "-5", "3"]),
    "images of an unknown type": set_feature("dtype", "float128"),
    "images of 16 bits": set_feature("dtype", "uint16"),
    "deflated tensors": set_feature("encoding", "zlib"),
    "features of no class": set_feature("pythonClassName", "tensorflow_datasets.core.nothing.Nothing"),
    "features of a number": set_feature("pythonClassName", 7),
    "deep features": replaced("encoded/1.0.0/features.json", b'{"a":' * 100_000),
    "10^6 names of classes": replaced("encoded/1.0.0/label.labels.txt", b"x\n" * 10**6),
    "names of classes that are not UTF-8": replaced("encoded/1.0.0/label.labels.txt", b"\xff\xfe\nox\ncow\n"),
}  # fmt: skip


# Folders of `mvcl data prepare`


def write_prepared(folder):
    """EEG, DomainNet and sentiment, each prepared from raw files."""
    with tempfile.TemporaryDirectory() as place:
        raw = Path(place)
        for i in range(3):
            recordings.write_sleep_edfx(raw / "eeg", f"SC40{i}1E", HYPNOGRAM, seconds=120, rates=(10, 10, 1))
        data.PrepareEeg(
            source=str(raw / "eeg"), format="sleep_edfx", rate=10, directory=str(folder / "eeg")
        ).run()
        write_domains(raw / "images")
        data.PrepareDomains(
            source=str(raw / "images"), domains=DOMAINS, directory=str(folder / "domains")
        ).run()
        np.savez(
            raw / "all.npz", **{f"{p}_{k}": v for p, part in utterances().items() for k, v in part.items()}
        )
        data.PrepareSentiment(source=str(raw / "all.npz"), directory=str(folder / "sentiment")).run()
    for file in [*folder.rglob(".*.lock"), *folder.rglob("*-of-0000?.json")]:
        file.unlink()


def read_prepared(folder):
    read_rows(data.Eeg(path=str(folder / "eeg")).open())
    read_rows(data.Sentiment(path=str(folder / "sentiment")).open())
    read_domains(folder / "domains")


HYPNOGRAM = [(0, 60, "Sleep stage W"), (60, 30, "Sleep stage 3"), (90, 30, "Sleep stage R")]
DOMAINS = ("clipart", "real", "sketch")


def utterances():
    part = {
        "text": RNG.normal(size=(4, 3, 5)), "audio": RNG.normal(size=(4, 2, 4)), "vision": RNG.normal(size=(4, 6, 3)),
        "regression_labels": np.linspace(-1, 1, 4),
    }  # fmt: skip
    return {"train": part, "test": part, "valid": part}


def write_domains(folder):
    for domain in DOMAINS:
        for part in ("train", "test"):
            lines = []
            for number, name in enumerate(("ant", "bee")):
                place = folder / domain / name
                place.mkdir(parents=True, exist_ok=True)
                for i in range(2):
                    Image.fromarray(pixels(5 + i, 4)).save(place / f"{part}{i}.png")
                    lines.append(f"{domain}/{name}/{part}{i}.png {number}\n")
            (folder / f"{domain}_{part}.txt").write_text("".join(lines))


def read_domains(folder):
    splits = data.DomainNet(path=str(folder), domains=DOMAINS, held_out="sketch", classes_per_draw=2).open()
    read_rows({name: split for name, split in splits.items() if name != "train"})
    splits["train"].read(0, 0)


def manifest(kind, change):
    return edited("manifest.json", change, among=kind)


def fact(kind, key, value):
    """A manifest whose items have another entry."""

    def change(tree):
        for shard in tree["shards"]:
            for item in shard["items"]:
                item[key] = value

    return manifest(kind, change)


def setting(kind, key, value):
    return manifest(kind, lambda tree: tree["settings"].update({key: value}))


def sealed(kind, *content):
    """A shard of other records, of the size that the manifest states."""

    def craft(folder):
        file = records("*.array_record", *content)(folder / kind)
        tree = json.loads((folder / kind / "manifest.json").read_text())
        tree["shards"][0]["bytes"] = file.stat().st_size
        (folder / kind / "manifest.json").write_text(json.dumps(tree))
        return file

    return craft


WRONG = (None, "x", -1, 2**40, 1e300, float("nan"), [], {}, [2**70], [[2**40, 2**40]] * 3, "9" * 5000)
PREPARED = {
    f"{key} of {kind}: {str(value)[:20]}": make(kind, key, value)
    for make, kind, keys in (
        (fact, "eeg", ("count", "labels", "subject")),
        (setting, "eeg", ("rate", "channels")),
        (fact, "domains", ("count", "labels", "list")),
        (setting, "domains", ("domains", "class_names")),
        (fact, "sentiment", ("count", "labels", "lengths", "sums", "squares", "ids", "split")),
        (setting, "sentiment", ("shapes", "dataset")),
    )
    for key in keys
    for value in WRONG
} | {
    "records of 512 MB": sealed("eeg", (1 << 29, 2)),
    "records of 100 MB": sealed("eeg", (100 << 20, 12)),
    "short records": sealed("eeg", (b"x", 12)),
    "no records": sealed("eeg"),
    "short utterances": sealed("sentiment", (b"xxxx", 12)),
    "odd utterances": sealed("sentiment", (b"x", 12)),
    "images that are none": sealed("domains", (b"x", 24)),
    "no shards": manifest("eeg", lambda tree: tree.update(shards=[])),
    "no settings": manifest("eeg", lambda tree: tree.update(settings=None)),
    "a shard without a name": manifest("eeg", lambda tree: tree["shards"][0].update(file="")),
    "a shard with a long name": manifest("eeg", lambda tree: tree["shards"][0].update(file="x" * 5000)),
    "a shard with a zero in its name": manifest("eeg", lambda tree: tree["shards"][0].update(file="x\0")),
    "the manifest as a shard": manifest("eeg", lambda tree: tree["shards"][0].update(file="manifest.json")),
    "deep JSON": replaced("eeg/manifest.json", b"[" * 100_000),
}  # fmt: skip


# Recordings


def write_edf(folder):
    recordings.write_sleep_edfx(folder, "SC4001E", HYPNOGRAM, seconds=120, rates=(10, 10, 1))


def write_wfdb(folder):
    recordings.write_physionet(folder, "tr00-0001", seconds=150, rate=20, stages=((15, "W"), (75, "N1")))


def prepare_eeg(format):
    def read(folder):
        with tempfile.TemporaryDirectory(dir=folder.parent) as out:
            data.PrepareEeg(source=str(folder), format=format, rate=10, directory=f"{out}/eeg").run()

    return read


def field(at, width, value):
    """An EDF file with another number in its header."""
    return lambda raw: raw[:at] + str(value).encode().ljust(width)[:width] + raw[at + width :]


def edf(counts, records, seconds, labels=None, stated=None):
    """An EDF file of zeros."""
    labels = labels or ["EEG Fpz-Cz", "EEG Pz-Oz", *(f"x{i}" for i in range(len(counts)))][: len(counts)]
    header = recordings.edf_header(
        labels, counts, stated or records, seconds, "", (-200, 200), (-32768, 32767)
    )
    return header + bytes(2 * records * sum(counts))


PSG, NOTES = "SC4001E0-PSG.edf", "SC4001EC-Hypnogram.edf"
EDF = {
    what: replaced(PSG, content)
    for what, content in {
        "10^8 records": field(236, 8, 99_999_999),
        "-1 records": field(236, 8, -1),
        "-99 records": field(236, 8, -99),
        "records of 10^-9 s": field(244, 8, "1e-9"),
        "records of 10^9 s": field(244, 8, "1e9"),
        "records of 10^300 s": field(244, 8, "1e300"),
        "records of 0 s": field(244, 8, "0"),
        "records of NaN s": field(244, 8, "nan"),
        "records of infinite length": field(244, 8, "inf"),
        "records of negative length": field(244, 8, "-30"),
        "records of odd length": field(244, 8, "29.87655"),
        "records of 10^6 s": field(244, 8, "1000000"),
        "records of 299 s": field(244, 8, "299"),
        "9999 signals": field(252, 4, 9999),
        "-1 signals": field(252, 4, -1),
        "0 signals": field(252, 4, 0),
        "a header of 10^8 bytes": field(184, 8, 99_999_999),
        "a negative header": field(184, 8, -256),
        "10^8 samples in a record": field(256 + 216 * 3, 8, 99_999_999),
        "-1 samples in a record": field(256 + 216 * 3, 8, -1),
        "no samples in a record": field(256 + 216 * 3, 8, 0),
        "an infinite range": field(256 + 104 * 3, 8, "inf"),
        "a range of NaN": field(256 + 104 * 3, 8, "nan"),
        "a range of 10^300": field(256 + 112 * 3, 8, "1e300"),
        "an empty range": field(256 + 120 * 3, 8, "32767"),
        "a date of NaN": field(168, 8, "nan.nan."),
        "the 99th month": field(168, 8, "99.99.99"),
        "one sample beside 10^6": lambda raw: edf([1, 10**6], 8, 30),
        "one sample beside 20": lambda raw: edf([1, 20], 400_000, 0.5),
        "a sample a second for a year": lambda raw: edf([1, 1], 2_000_000, 1),
        "two samples a second for a month": lambda raw: edf([2, 2], 900_000, 1),
        "two signals of one name": lambda raw: edf([300, 300], 8, 30, ["EEG Fpz-Cz"] * 2),
        "1,000 signals": lambda raw: edf([1] * 1000, 40, 1),
        "9,000 signals": lambda raw: edf([1] * 9000, 40, 1),
        "2,000 signals of one name": lambda raw: edf([1] * 2000, 40, 1, ["EEG Fpz-Cz"] * 2000),
        "300 MB": lambda raw: edf([3000, 3000, 3000], 16_000, 30),
    }.items()
} | {
    what: replaced(NOTES, content)
    for what, content in {
        "10^6 annotations without an end": lambda raw: raw + b"+1\x14x" * 200_000,
        "a number of 10^6 digits": lambda raw: raw + b"+" + b"1" * 900_000 + b"\x14x\x14\0",
        "10^5 annotations of all times": lambda raw: raw + b"+0\x15999999999\x14Sleep stage 1\x14\0" * 30_000,
        "10^5 texts": lambda raw: raw + b"+0\x1530" + b"\x14Sleep stage 1" * 60_000 + b"\x14\0",
        "100 MB of annotations": lambda raw: raw + bytes(100 << 20),
        "times of 10^9 s": lambda raw: raw.replace(b"+60", b"+999999999"),
        "no annotations": lambda raw: raw.replace(b"Sleep", b"sleep"),
        "a late start": lambda raw: raw.replace(b"+0\x14", b"+99999\x14"),
    }.items()
}  # fmt: skip


def hea(first, signal=None):
    """A header of the record with another first line or other lines of signals."""

    def change(raw):
        lines = raw.decode().splitlines()
        lines[0] = first
        return (
            "\n".join([lines[0], *([signal(line) for line in lines[1:]] if signal else lines[1:])]).encode()
            + b"\n"
        )

    return change


SAME = "tr00-0001 8 20 3000"
WFDB = {
    what: replaced("tr00-0001/tr00-0001.hea", content)
    for what, content in {
        "10^12 samples": hea("tr00-0001 8 20 1000000000000"),
        "2^70 samples": hea(f"tr00-0001 8 20 {2**70}"),
        "no number of samples": hea("tr00-0001 8 20"),
        "10^9 signals": hea("tr00-0001 1000000000 20 3000"),
        "0 signals": hea("tr00-0001 0 20 3000"),
        "0 Hz": hea("tr00-0001 8 0 3000"),
        "10^12 Hz": hea("tr00-0001 8 1000000000000 3000"),
        "10^-6 Hz": hea("tr00-0001 8 0.000001 3000"),
        "19.87654321 Hz": hea("tr00-0001 8 19.87654321 3000"),
        "1 Hz": hea("tr00-0001 8 1 3000"),
        "10^6 segments": hea("tr00-0001/1000000 8 20 3000"),
        "segments in themselves": b"tr00-0001/2 8 20 3000\ntr00-0001 1500\ntr00-0001 1500\n",
        "skew": hea(SAME, lambda line: line.replace("16+24", "16:1000000000+24")),
        "10^9 samples in a frame": hea(SAME, lambda line: line.replace("16+24", "16x1000000000+24")),
        "an offset of 10^12": hea(SAME, lambda line: line.replace("16+24", "16+1000000000000")),
        "format 516": hea(SAME, lambda line: line.replace("16+24", "516+24")),
        "format 212": hea(SAME, lambda line: line.replace("16+24", "212+24")),
        "format 8": hea(SAME, lambda line: line.replace("16+24", "8+24")),
        "format 99": hea(SAME, lambda line: line.replace("16+24", "99+24")),
        "no gain": hea(SAME, lambda line: line.replace("100/uV", "0/uV")),
        "a gain of 10^300": hea(SAME, lambda line: line.replace("100/uV", "1e300/uV")),
        "a baseline of 10^30": hea(SAME, lambda line: line.replace("100/uV", f"100({10**30})/uV")),
        "another file": hea(SAME, lambda line: "/etc/passwd" + line[line.index(" ") :]),
        "a line of 10^6 digits": b"1" * 10**6,
        "a line of 900 digits": b"1" * 900,
        "10^5 lines": hea(SAME + "\n# x" * 10_000),
    }.items()
} | {
    "annotations of 10 MB": replaced("tr00-0001/tr00-0001.arousal", lambda raw: raw[:-2] + b"\1\4" * (5 << 20)),
    "annotations of 1 MB": replaced("tr00-0001/tr00-0001.arousal", lambda raw: raw[:-2] + b"\1\4" * (1 << 18)),
    "late annotations": replaced("tr00-0001/tr00-0001.arousal", b"\0\xec\xff\x7f\xff\xff" * 9 + b"\1\x58\2\xfcW\0\0\0"),
}  # fmt: skip


# Lists, archives and pickles


def write_lists(folder):
    write_domains(folder)


def listed(content):
    return replaced("real_train.txt", content)


LISTS = {
    "a number of 10^4 digits": listed(b"real/ant/train0.png " + b"9" * 10_000),
    "a number of 10^8": listed(b"real/ant/train0.png 99999999\n"),
    "a long name": listed(b"real/" + b"a" * 5000 + b"/x.png 0\n"),
    "a zero in a name": listed(b"real/\0/x.png 0\n"),
    "10^4 lines": listed(lambda raw: raw + b"real/ant/train0.png 0\n" * 10**4),
    "a line of 50 MB": listed(lambda raw: b"x" * (50 << 20)),
    "another folder": listed(b"../../etc/passwd 0\n"),
    "one class": listed(b"real/ant/train0.png 0\n"),
}


def write_aircraft(folder):
    place = folder / "fgvc-aircraft-2013b" / "data"
    (place / "images").mkdir(parents=True)
    (place / "variants.txt").write_text("707\nA300\n")
    for i in range(4):
        Image.fromarray(pixels(30, 9)).save(place / "images" / f"{i}.jpg")
    (place / "images_variant_trainval.txt").write_text("0 707\n1 A300\n")
    (place / "images_variant_test.txt").write_text("2 707\n3 A300\n")
    with tarfile.open(folder / "archive.tar.gz", "w:gz") as archive:
        archive.add(place.parent, "fgvc-aircraft-2013b")


def read_aircraft(folder):
    read_rows(data.Transfer(name="aircraft", directory=str(folder)).open())
    with tempfile.TemporaryDirectory(dir=folder.parent) as out:
        options = {"names": ("aircraft",), "directory": out}
        data.PrepareTransfer(**options, aircraft=str(folder / "archive.tar.gz")).run()


def tar(*members, gz=True):
    """An archive of (name, content or size in zeros)."""

    def craft(folder):
        file = folder / "archive.tar.gz"
        with tarfile.open(file, "w:gz" if gz else "w", **({"compresslevel": 1} if gz else {})) as archive:
            for name, content in members:
                info = tarfile.TarInfo(f"fgvc-aircraft-2013b/data/{name}")
                info.size = content if isinstance(content, int) else len(content)
                source = Zeros(content) if isinstance(content, int) else io.BytesIO(content)
                archive.addfile(info, source)
        return file

    return craft


class Zeros(io.RawIOBase):
    """A file of zeros."""

    def __init__(self, size):
        self.left = size

    def read(self, size=-1):
        """The next zeros."""
        size = min(self.left, size if size >= 0 else self.left)
        self.left -= size
        return bytes(size)


def long_header(kind):
    """An archive with a name of 1.5 GB before its files."""

    def craft(folder):
        file = folder / "archive.tar.gz"
        info = tarfile.TarInfo("x")
        info.type, info.size = kind, 3 << 29
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        with open(file, "wb") as out:
            out.write(packer.compress(info.tobuf(tarfile.GNU_FORMAT)))
            for _ in range(96):
                out.write(packer.compress(b"1" * (1 << 24)))
            out.write(packer.flush())
        return file

    return craft


AIRCRAFT = {
    "500 MB in a file": tar(("variants.txt", 500 << 20)),
    "500 MB beside the data": tar(("x", 500 << 20)),
    "40,000 files": tar(*[(f"images/{i}.jpg", b"") for i in range(40_000)]),
    "a long name": tar(("x" * 300, b"x")),
    "not compressed": tar(("variants.txt", b"707\n"), gz=False),
    "a name of 1.5 GB": long_header(tarfile.GNUTYPE_LONGNAME),
    "attributes of 1.5 GB": long_header(tarfile.XHDTYPE),
    "variants that are not UTF-8": replaced("fgvc-aircraft-2013b/data/variants.txt", b"\xff\xfe"),
    "a long name of an image": replaced(
        "fgvc-aircraft-2013b/data/images_variant_test.txt", b"x" * 5000 + b" 707\n"
    ),
    "a zero in a name": replaced("fgvc-aircraft-2013b/data/images_variant_test.txt", b"\0 707\n"),
}


def write_pickle(folder):
    parts = utterances()
    for part in parts.values():
        part |= {"id": [f"v$_${i}" for i in range(4)], "raw_text": np.asarray(["x"] * 4, object)}
    (folder / "mmsa.pkl").write_bytes(pickle.dumps(parts, protocol=4))
    (folder / "old.pkl").write_bytes(pickle.dumps(parts, protocol=2))


def read_pickles(folder):
    for name in ("mmsa.pkl", "old.pkl"):
        read_rows(data.Sentiment(path=str(folder / name), allow_pickle=True).open())


def pickled(*parts):
    return replaced("mmsa.pkl", b"".join([b"\x80\x04", *parts]))


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(tRcnumpy\ndtype\n(X\x01\0\0\0"
PICKLES = {
    "a memo of 2^28": pickled(b"Nr" + struct.pack("<I", 2**28) + b"."),
    "a memo of 2^31": pickled(b"Nr" + struct.pack("<I", 2**31) + b"."),
    "a memo of 10^30 as text": pickled(b"Np" + b"9" * 30 + b"\n."),
    "bytes of 2^40": pickled(b"\x8e" + struct.pack("<Q", 2**40) + b"x."),
    "bytes of 2^63": pickled(b"\x8e" + struct.pack("<Q", 2**63) + b"x."),
    "text of 2^40": pickled(b"\x8d" + struct.pack("<Q", 2**40) + b"x."),
    "bytes of 2 GB": pickled(b"B" + struct.pack("<I", 2**31 - 1) + b"x."),
    "an array of bytes of 2^40": pickled(b"\x96" + struct.pack("<Q", 2**40) + b"x."),
    "a frame of 2^40": pickled(b"\x95" + struct.pack("<Q", 2**40) + b"N."),
    "a number of 2 GB": pickled(b"\x8b" + struct.pack("<I", 2**31 - 1) + b"x."),
    "a number of 10^6 digits": pickled(b"I" + b"9" * 10**6 + b"\n."),
    "a number of 10^6 bytes": pickled(b"\x8b" + struct.pack("<I", 10**6) + b"\x7f" * 10**6 + b"."),
    "tuples of tuples as a key": pickled(b"}", b")" + b"2\x86" * 60, b"Ns."),
    "tuples of tuples in a set": pickled(b"\x8f(", b")" + b"2\x86" * 60, b"\x90."),
    "tuples of tuples": pickled(b")" + b"2\x86" * 60, b"."),
    "tuples of tuples in a frozen set": pickled(b"(", b")" + b"2\x86" * 60, b"\x91."),
    "lists of lists": pickled(b"]" * 100_000 + b"a" * 99_999 + b"."),
    "a list in itself": pickled(b"]\x94h\0a."),
    "10^6 marks": pickled(b"(" * 10**6 + b"."),
    "10^6 empty dicts": pickled(b"](" + b"}" * 10**6 + b"e."),
}  # fmt: skip


FORMATS = {
    one.name: one
    for one in (
        Format("JPEG", lambda folder: write_folder(folder, JPEGS), read_folder, crafted=JPEG_BOMBS),
        Format("PNG", lambda folder: write_folder(folder, PNGS), read_folder, crafted=PNG_BOMBS, repack=repack_png),
        Format("other images", lambda folder: write_folder(folder, OTHERS), read_folder, crafted=OTHER_BOMBS),
        Format("records of tfds", write_tfds, read_tfds, crafted=TFDS),
        Format("prepared records", write_prepared, read_prepared, crafted=PREPARED),
        Format("EDF", write_edf, prepare_eeg("sleep_edfx"), crafted=EDF, names=lambda file: file.name[8:]),
        Format("WFDB", write_wfdb, prepare_eeg("physionet2018"), crafted=WFDB, names=lambda file: file.suffix),
        Format("lists of DomainNet", write_lists, read_domains, "*.txt", crafted=LISTS),
        Format("FGVC-Aircraft", write_aircraft, read_aircraft, crafted=AIRCRAFT),
        Format("pickles", write_pickle, read_pickles, crafted=PICKLES),
    )
}  # fmt: skip
