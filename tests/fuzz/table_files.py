"""Feature tables and arrays to damage: valid files of each kind, hostile ones, and how a user reads them."""

import functools
import io
import struct
import zipfile
import zlib

import h5py
import numpy as np
import pyarrow as pa
import scipy.io
import scipy.sparse
from mutations import Format
from PIL import Image
from pyarrow import csv, parquet

from mvcl import data

N = 12
RNG = np.random.default_rng(0)
WIDE, NARROW = RNG.normal(size=(N, 7)), RNG.normal(size=(N, 4))
LABELS = np.repeat([1, 2, 3], N // 3)
NAMES = np.array(["ox", "ass", "cow"], object)[LABELS - 1]
BLOCK = 1 << 24


def open_all(*names):
    """Reads the files of a folder as tables."""

    def read(folder):
        for name in names:
            split = data.Tables(path=str(folder / name)).open()["train"]
            split.read(0, 0)

    return read


def replaced(name, content):
    """A hostile folder: its file `name` has other content, bytes or what a function of the path writes."""

    def craft(folder):
        file = folder / name
        if callable(content):
            file.unlink()
            content(file)
        else:
            file.write_bytes(content)
        return file

    return craft


# MATLAB 5


def cell(*items):
    array = np.empty((1, len(items)), object)
    array[0, :] = items
    return array


def write_mat5(folder):
    cells = {"X": cell(WIDE, NARROW), "Y": LABELS[:, None]}
    scipy.io.savemat(folder / "cells.mat", cells, do_compression=True)
    matrices = {"X1": scipy.sparse.csc_matrix(WIDE), "X2": NARROW, "label": NAMES[:, None], "note": "a text"}
    scipy.io.savemat(folder / "matrices.mat", matrices | {"info": {"made": 1.0, "by": "us"}})


def repack_mat5(content, change, rng):
    """Changes one compressed element of a file, or what follows the header."""
    elements, at = [], 128
    while at + 8 <= len(content):
        kind, size = struct.unpack_from("<II", content, at)
        if kind != 15:
            return content[:128] + change(content[128:])
        elements.append(content[at + 8 : at + 8 + size])
        at += 8 + size
    chosen = rng.randrange(len(elements))
    packed = [zlib.compress(change(zlib.decompress(e))) if i == chosen else e for i, e in enumerate(elements)]
    return content[:128] + b"".join(struct.pack("<II", 15, len(e)) + e for e in packed)


HEADER_MAT5 = b"MATLAB 5.0 MAT-file".ljust(116) + bytes(8) + b"\x00\x01IM"


@functools.cache
def raw_zeros(size, before=b""):
    """A deflate stream of `before` and then `size` zeros, made of one block again and again."""
    parts = []
    for content, times in ((before, 1), (bytes(BLOCK), size // BLOCK), (bytes(size % BLOCK), 1)):
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        parts.append((packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)) * times)
    return b"".join(parts) + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


def deflated_zeros(size, before=b""):
    """The same as a zlib stream."""
    check = zlib.adler32(before)
    low, high = check & 0xFFFF, check >> 16
    check = (high + size * low) % 65521 << 16 | low
    return b"\x78\xda" + raw_zeros(size, before) + check.to_bytes(4, "big")


def matrix_tag(name, rows, columns, stored):
    """Tags of a double matrix whose numbers follow; `stored` is their size as the tag states it."""
    body = struct.pack("<IIII", 6, 8, 6, 0) + struct.pack("<IIii", 5, 8, rows, columns)
    body += struct.pack("<II", 1, len(name)) + name.ljust(-(-len(name) // 8) * 8, b"\0")
    body += struct.pack("<II", 9, stored)
    return struct.pack("<II", 14, min(2**32 - 1, len(body) + stored)) + body


def mat5(*elements):
    return HEADER_MAT5 + b"".join(elements)


def compressed_element(payload):
    return struct.pack("<II", 15, len(payload)) + payload


def nested_cells(depth):
    """Cells in cells in cells."""
    inner = matrix_tag(b"", 1, 1, 8) + struct.pack("<d", 1.0)
    for _ in range(depth):
        head = struct.pack("<IIII", 6, 8, 1, 0) + struct.pack("<IIii", 5, 8, 1, 1) + struct.pack("<II", 1, 0)
        inner = struct.pack("<II", 14, len(head) + len(inner)) + head + inner
    return inner


def sparse_element(rows, columns):
    """A sparse matrix with one entry and a huge shape."""
    flags = struct.pack("<IIII", 6, 8, 5, 1) + struct.pack("<IIii", 5, 8, rows, columns)
    body = flags + struct.pack("<IIQ", 1, 2, int.from_bytes(b"X1", "little"))
    body += struct.pack("<IIii", 5, 4, 0, 0)
    jc = np.zeros(min(columns, 1 << 20) + 1, "<i4")
    body += struct.pack("<II", 5, jc.nbytes) + jc.tobytes() + bytes(-jc.nbytes % 8)
    body += struct.pack("<IId", 9, 8, 1.0)
    return struct.pack("<II", 14, len(body)) + body


def bomb_mat5(size, **stated):
    stored = stated.get("stored", size)
    return lambda file: file.write_bytes(
        mat5(compressed_element(deflated_zeros(size, matrix_tag(b"X1", 1 << 15, size >> 18, stored))))
    )


MAT5 = {
    "deflate bomb": replaced("cells.mat", bomb_mat5(3 << 30)),
    "deflate bomb that states 64 bytes": replaced("cells.mat", bomb_mat5(2 << 30, stored=64)),
    "many deflate bombs": replaced(
        "cells.mat",
        lambda file: file.write_bytes(
            mat5(
                *[
                    compressed_element(
                        deflated_zeros(400 << 20, matrix_tag(b"X%d" % i, 1 << 15, 1600, 400 << 20))
                    )
                    for i in range(8)
                ]
            )
        ),
    ),
    "2 GB stated": replaced("cells.mat", mat5(matrix_tag(b"X1", 1 << 14, 1 << 14, 1 << 31))),
    "negative shape": replaced("cells.mat", mat5(matrix_tag(b"X1", -1, 5, 40) + bytes(40))),
    "huge shape, few numbers": replaced("cells.mat", mat5(matrix_tag(b"X1", 1 << 30, 1 << 30, 40) + bytes(40))),
    "sparse of 2^40 entries": replaced(
        "cells.mat", mat5(sparse_element(1 << 20, 1 << 20), matrix_tag(b"X2", 2, 2, 32) + bytes(32))
    ),
    "sparse of 2^60 entries": replaced("cells.mat", mat5(sparse_element(1 << 30, 1 << 30))),
    "cells nested 10^5 deep": replaced("cells.mat", lambda file: file.write_bytes(mat5(nested_cells(5000)))),
    "deep cells, compressed": replaced(
        "cells.mat", lambda file: file.write_bytes(mat5(compressed_element(zlib.compress(nested_cells(3000)))))
    ),
    "cell array of 2^31 cells": replaced(
        "cells.mat",
        mat5(
            struct.pack("<II", 14, 48)
            + struct.pack("<IIII", 6, 8, 1, 0)
            + struct.pack("<IIii", 5, 8, 1 << 15, 1 << 15)
            + struct.pack("<IIQ", 1, 1, ord("X"))
        ),
    ),
    "version 4, 2^31 rows": replaced("cells.mat", struct.pack("<5i", 0, 2**31 - 1, 2**31 - 1, 0, 2) + b"X\0"),
    "version 4, 2^28 numbers": replaced("cells.mat", struct.pack("<5i", 0, 2**14, 2**14, 0, 2) + b"X\0"),
}  # fmt: skip


# MATLAB 7.3


def write_mat73(folder):
    for name, options, libver in (
        ("cells.mat", {}, "earliest"),
        ("chunks.mat", {"compression": "gzip", "chunks": True, "shuffle": True}, "earliest"),
        ("newest.mat", {"compression": "gzip", "fletcher32": True}, "latest"),
    ):
        with h5py.File(folder / name, "w", userblock_size=512, libver=libver) as file:
            stored = []
            for i, view in enumerate((WIDE, NARROW)):
                where = f"#refs#/{i}" if name == "cells.mat" else f"X{i + 1}"
                stored.append(file.create_dataset(where, data=view.T, **options))
                stored[-1].attrs["MATLAB_class"] = np.bytes_("double")
            if name == "cells.mat":
                references = np.array([[stored[0].ref], [stored[1].ref]], h5py.ref_dtype)
                file.create_dataset("X", data=references).attrs["MATLAB_class"] = np.bytes_("cell")
                sparse = scipy.sparse.csc_matrix(NARROW)
                group = file.create_group("S")
                group.attrs["MATLAB_sparse"] = np.uint64(N)
                for part, values in (("data", sparse.data), ("ir", sparse.indices), ("jc", sparse.indptr)):
                    group.create_dataset(part, data=values)
            labels = file.create_dataset("Y", data=LABELS[None].astype(float))
            labels.attrs["MATLAB_class"] = np.bytes_("double")
        seal(folder / name)


def seal(file):
    with open(file, "r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def hdf5(write):
    """A hostile MATLAB 7.3 file whose datasets `write(file)` makes."""

    def make(path):
        with h5py.File(path, "w", userblock_size=512) as file:
            write(file)
            file.create_dataset("Y", data=LABELS[None].astype(float))
        seal(path)

    return replaced("cells.mat", make)


def zeros_hdf5(file, rows, columns, **options):
    for name in ("X1", "X2"):
        file.create_dataset(name, shape=(rows, columns), dtype="f8", **options)


def gzip_bomb(file):
    """Chunks of 16 MiB of zeros that all are the same few bytes on disk."""
    packed = zlib.compress(bytes(16 << 20), 9)
    for name in ("X1", "X2"):
        found = file.create_dataset(name, (2 << 8, 1 << 21), "f8", chunks=(1, 1 << 21), compression="gzip")
        for row in range(2 << 8):
            found.id.write_direct_chunk((row, 0), packed)


def chunk_bomb(file):
    """A chunk that inflates to 2 GiB although it must hold 8 KiB."""
    packed = deflated_zeros(2 << 30)
    for name in ("X1", "X2"):
        found = file.create_dataset(name, (12, 1 << 10), "f8", chunks=(1, 1 << 10), compression="gzip")
        found.id.write_direct_chunk((0, 0), packed)


def cycle(file):
    """A cell array that holds itself."""
    cells = file.create_dataset("X", (2, 1), h5py.ref_dtype)
    cells.attrs["MATLAB_class"] = np.bytes_("cell")
    cells[0, 0] = cells[1, 0] = cells.ref


def references(file):
    """A cell array that holds the same megabyte of numbers 100,000 times."""
    numbers = file.create_dataset("#refs#/a", data=np.zeros((1 << 7, 1 << 10)))
    cells = file.create_dataset("X", data=np.full((100_000, 1), numbers.ref, h5py.ref_dtype))
    cells.attrs["MATLAB_class"] = np.bytes_("cell")


def sparse_hdf5(rows, columns):
    def write(file):
        group = file.create_group("X1")
        group.attrs["MATLAB_sparse"] = np.uint64(rows)
        jc = group.create_dataset("jc", (columns + 1,), "u8", chunks=(1 << 10,), compression="gzip")
        jc[columns] = 1
        group.create_dataset("data", data=np.ones(1))
        group.create_dataset("ir", data=np.zeros(1, "u8"))
        file.create_dataset("X2", data=NARROW.T)

    return write


def external(file):
    """Numbers that are in another file of the machine, and a link to a file."""
    file.create_dataset("X1", (1, 100), "u1", external=[("/etc/passwd", 0, 100)])
    file["X2"] = h5py.ExternalLink("/etc/passwd", "/x")


MAT73 = {
    "2^60 numbers, none stored": hdf5(lambda f: zeros_hdf5(f, 1 << 30, 1 << 30, chunks=(1 << 5, 1 << 5))),
    "20 GiB, none stored": hdf5(lambda f: zeros_hdf5(f, 1 << 15, 82_000, chunks=(1 << 5, 1 << 5))),
    "1 GiB each, none stored": hdf5(lambda f: zeros_hdf5(f, 1 << 14, 1 << 13, chunks=(1 << 5, 1 << 5))),
    "contiguous, none stored": hdf5(lambda f: zeros_hdf5(f, 1 << 15, 82_000)),
    "gzip bomb": hdf5(gzip_bomb),
    "a chunk that expands too far": hdf5(chunk_bomb),
    "cells in themselves": hdf5(cycle),
    "one matrix in 100,000 cells": hdf5(references),
    "sparse of 2^40 entries": hdf5(sparse_hdf5(1 << 20, 1 << 20)),
    "sparse of 2^63 entries": hdf5(sparse_hdf5(1 << 43, 1 << 20)),
    "numbers of another file": hdf5(external),
}


# .npz and .npy


def write_npz(folder):
    arrays = {
        "X1": WIDE,
        "X2": NARROW.astype(np.float32),
        "labels": LABELS,
        "ids": [f"s{i}" for i in range(N)],
    }
    np.savez(folder / "stored.npz", **arrays)
    np.savez_compressed(folder / "packed.npz", **arrays | {"labels": NAMES.astype(str)})


def repack_npz(content, change, rng):
    """Changes one member of an archive and writes it again, with its checksum."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        chosen = rng.randrange(len(old.infolist()))
        for number, member in enumerate(old.infolist()):
            raw = old.read(member)
            if number == chosen and rng.random() < 0.5:  # the header alone
                raw = change(raw[:128]) + raw[128:]
            elif number == chosen:
                raw = change(raw)
            new.writestr(member, raw, member.compress_type)
    return buffer.getvalue()


def npy(shape, descr="'<f8'", payload=b"", fortran="False", version=b"\x01\x00"):
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    size = len(text) + 1
    width = struct.pack("<H", size) if version == b"\x01\x00" else struct.pack("<I", size)
    return b"\x93NUMPY" + version + width + text + b"\n" + payload


def archive(members, stated=None):
    """Writes an .npz file; the content of a member is bytes, or bytes and a number of zeros.

    A member with zeros states `stated` bytes if given, and a wrong checksum.
    """

    def write(file):
        entries, at = [], 0
        with open(file, "wb") as out:
            for name, content in members.items():
                head, zeros = content if isinstance(content, tuple) else (content, 0)
                raw, size = raw_zeros(zeros, head), len(head) + zeros
                size = stated if zeros and stated else size
                name = f"{name}.npy".encode()
                fields = struct.pack("<HHHHH", 20, 0, 8, 0, 33)
                fields += struct.pack(
                    "<IIIHH", zlib.crc32(head), len(raw), min(size, 2**32 - 1), len(name), 0
                )
                out.write(b"PK\3\4" + fields + name + raw)
                entries.append(b"PK\1\2\x14\0" + fields + struct.pack("<HHHII", 0, 0, 0, 0, at) + name)
                at = out.tell()
            listed = b"".join(entries)
            number = min(len(entries), 65_535)
            out.write(listed + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, number, number, len(listed), at, 0))

    return write


def overlapping(file):
    """An archive whose nine members are the same bytes."""
    archive({"X0": (npy("(12, 1048576)"), 12 << 23)})(file)
    raw = file.read_bytes()
    at, end = raw.index(b"PK\1\2"), raw.rindex(b"PK\5\6")
    entries = b"".join(raw[at:end].replace(b"X0.npy", b"X%d.npy" % i) for i in range(1, 10))
    file.write_bytes(
        raw[:at] + entries + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 9, 9, len(entries), at, 0)
    )


OBJECTS = b"\x80\x04\x95\x11\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x05mkdir\x94\x93\x94."


def hostile_npz(name, first, second):
    """Hostile archives under `name`; `first` and `second` are the members that are replaced."""

    def members(content):
        return replaced(name, archive({first: content, second: npy("(12, 4)", payload=bytes(384))}))

    shapes = {
        "2^40 numbers": npy("(1099511627776,)"),
        "20 GB stated": npy("(12, 223696213)"),
        "overflowing shape": npy("(4294967296, 4294967296, 4)"),
        "shape of 0 times 2^70": npy(f"(0, {2**70})"),
        "shape of 2^70": npy(f"({2**70},)"),
        "negative shape": npy("(-1, 4)", payload=bytes(384)),
        "negative product": npy("(-12, -4)", payload=bytes(384)),
        "64 axes": npy(str((1,) * 64), payload=bytes(8)),
        "65 axes": npy(str((1,) * 65), payload=bytes(8)),
        "shape of text": npy("('12', 4)", payload=bytes(384)),
        "shape of fractions": npy("(12.0, 4)", payload=bytes(384)),
        "shape of truth": npy("(True, True)", payload=bytes(384)),
        "objects": npy("(1,)", "'|O'", OBJECTS),
        "fields with objects": npy("(1,)", "[('a', '|O')]", OBJECTS),
        "fields": npy("(12, 4)", "[('a', '<f8')]", bytes(384)),
        "fields nested deep": npy("(1,)", "[('a', " * 60 + "'<f8'" + ")]" * 60, bytes(384)),
        "no bytes per number": npy("(1099511627776,)", "'|V0'"),
        "text of 2 GB": npy("(12,)", "'<U536870911'"),
        "text of no characters": npy("(1099511627776, 4)", "'<U0'"),
        "dates": npy("(12, 4)", "'<M8[ns]'", bytes(384)),
        "complex": npy("(12, 4)", "'<c16'", bytes(768)),
        "unknown dtype": npy("(12, 4)", "'<q99'", bytes(384)),
        "subarrays": npy("(12, 4)", "('<f8', (1073741824,))", bytes(384)),
        "unsafe header": npy("__import__('os').mkdir('x')"),
        "header of 16 MB": npy("(" + "1, " * 5_000_000 + ")", version=b"\x02\x00"),
        "deep header": npy("(" * 9000 + ")" * 9000, version=b"\x02\x00"),
        "version 9": npy("(12, 4)", payload=bytes(384), version=b"\x09\x00"),
        "columns first": npy("(12, 4)", payload=bytes(384), fortran="True"),
    }
    return {what: members(content) for what, content in shapes.items()} | {
        "4 GB of zeros": members((npy("(12, 44739242)"), 12 * 44739242 * 8)),
        "1 GiB of zeros": members((npy("(12, 11184810)"), 12 * 11184810 * 8)),
        "200 MiB of zeros": members((npy("(12, 2184532)"), 12 * 2184532 * 8)),
        "a member that states less": replaced(
            name, archive({first: (npy("(12, 10)"), 2 << 30)}, stated=1088)
        ),
        "members that overlap": replaced(name, overlapping),
        "65,000 members": replaced(name, archive({f"X{i}": b"" for i in range(65_000)})),
        "no members": replaced(name, archive({})),
    }


def write_npy(folder):
    tables = folder / "tables"
    tables.mkdir()
    np.save(tables / "audio.npy", WIDE)
    np.save(tables / "video.npy", np.asfortranarray(NARROW.astype(np.float32)))
    np.save(tables / "labels.npy", LABELS)


HOSTILE_NPY = {
    "2^40 numbers": npy("(1099511627776,)"),
    "20 GB stated": npy("(12, 223696213)"),
    "negative shape": npy("(-1, 4)", payload=bytes(384)),
    "overflowing shape": npy("(4294967296, 4294967296, 4)"),
    "no bytes per number": npy("(1099511627776,)", "'|V0'"),
    "objects": npy("(1,)", "'|O'", OBJECTS),
    "header of 16 MB": npy("(" + "1, " * 5_000_000 + ")", version=b"\x02\x00"),
}
NPY = {what: replaced("tables/audio.npy", content) for what, content in HOSTILE_NPY.items()}


# Images in an .npz file


def write_images(folder):
    labels = np.arange(N) % 3
    images = RNG.integers(0, 256, (N, 8, 8, 3), np.uint8)
    np.savez_compressed(folder / "images.npz", images=images, labels=labels)
    encoded = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "jpeg")
        encoded.append(buffer.getvalue())
    parts = {}
    for part in ("train", "test"):
        parts[f"{part}_jpeg"] = np.frombuffer(b"".join(encoded), np.uint8)
        parts[f"{part}_offsets"] = np.cumsum([0, *map(len, encoded)])
        parts[f"{part}_labels"] = labels
    np.savez(folder / "jpeg.npz", **parts, class_names=["a", "b", "c"])


def read_images(folder):
    for name in ("images.npz", "jpeg.npz"):
        for split in data.Arrays(path=str(folder / name)).open().values():
            for row in range(len(split)):
                split.read(row, 0)


def jpeg_with(**arrays):
    """A file of encoded images with some arrays replaced."""

    def craft(folder):
        file = folder / "jpeg.npz"
        with np.load(file) as archive:
            whole = dict(archive)
        np.savez(file, **whole | arrays)
        return file

    return craft


def large_labels(folder):
    """Labels up to 2^31 - 1, of which each would need the name of a class."""
    file = folder / "images.npz"
    np.savez(file, images=np.zeros((10, 8, 8), np.uint8), labels=np.arange(10) + 2**31 - 11)
    return file


IMAGES = hostile_npz("images.npz", "images", "labels") | {
    "labels up to 2^31": large_labels,
    "labels up to 2^63": jpeg_with(train_labels=np.full(N, 2**63 - 1)),
    "labels up to 2^64": jpeg_with(train_labels=np.full(N, 2**64 - 1, np.uint64)),
    "no labels": jpeg_with(train_labels=np.zeros(0, int), train_offsets=np.zeros(1, int)),
    "negative offsets": jpeg_with(train_offsets=np.arange(N + 1) - 5),
    "offsets of 2^62": jpeg_with(train_offsets=np.arange(N + 1) * 2**58),
    "offsets that wrap": jpeg_with(train_offsets=np.array([0, 2**64 - 1] * 7, np.uint64)[: N + 1]),
    "fractional offsets": jpeg_with(train_offsets=np.linspace(0, 9, N + 1)),
    "offsets that are NaN": jpeg_with(train_offsets=np.full(N + 1, np.nan)),
    "offsets of text": jpeg_with(train_offsets=np.array(["a"] * (N + 1))),
    "no offsets": jpeg_with(train_offsets=np.zeros(0, int)),
    "a scalar": jpeg_with(train_offsets=np.zeros((), int)),
    "encoded as numbers": jpeg_with(train_jpeg=np.zeros((5, 5))),
    "class names in a square": jpeg_with(class_names=np.array([["a", "b"], ["c", "d"]])),
    "one class name": jpeg_with(class_names=np.array("a")),
}


# .csv and .parquet


def columns():
    ids = [f"s{i}" for i in range(N)]
    wide = pa.table({"id": ids, **{f"a{i}": column for i, column in enumerate(WIDE.T)}})
    narrow = pa.table({"id": ids[2:], **{f"b{i}": column[2:] for i, column in enumerate(NARROW.T)}})
    return {"audio": wide, "video": narrow, "labels": pa.table({"id": ids, "label": NAMES.tolist()})}


def write_csv(folder):
    (folder / "tables").mkdir()
    for name, table in columns().items():
        csv.write_csv(table, folder / "tables" / f"{name}.csv")


def write_parquet(folder):
    (folder / "tables").mkdir()
    for (name, table), packing in zip(columns().items(), ("none", "snappy", "zstd")):
        parquet.write_table(table, folder / "tables" / f"{name}.parquet", compression=packing)


def lines(*content):
    def write(file):
        with open(file, "wb") as out:
            out.writelines(content)

    return replaced("tables/audio.csv", write)


CSV = {
    "a line of 200 MB": lines(b"id,a\n", *[b"1" * (1 << 20)] * 200, b"\n"),
    "a header of 200 MB": lines(*[b"1" * (1 << 20)] * 200, b"\n1\n"),
    "10^6 columns": lines(
        b"id," + b",".join(b"c%d" % i for i in range(10**6)), b"\ns1" + b",1" * 10**6, b"\n"
    ),
    "49,000 columns": lines(
        b"id," + b",".join(b"c%d" % i for i in range(49_000)), b"\ns1" + b",1" * 49_000, b"\n"
    ),
    "2 10^6 rows": lines(b"id,a\n", *[b"1,1\n" * 1000] * 2000),
    "texts of 20 MB": lines(b"id,a\n", *[b"s,%s\n" % (b"x" * 100_000)] * 200),
    "10^6 columns of one name": lines(b"id," + b"c," * 10**6, b"\ns1" + b",1" * 10**6, b"\n"),
    "10^6 commas": lines(b"," * 10**6, b"\n", b"," * 10**6, b"\n"),
    "10^5 rows of 10 columns": lines(b"id,a,b,c\n", *(b"s%d,1,2,3\n" % i for i in range(10**5))),
    "numbers of 400 digits": lines(b"id,a\n", *(b"s%d,%s\n" % (i, b"9" * 400) for i in range(N))),
    "an open quote": lines(b'id,a\n"', b"s" * (1 << 22)),
    "zero bytes": lines(b"id,a\n", b"\0" * (1 << 20)),
    "not UTF-8": lines(b"id,a\n\xff\xfe,1\ns2,2\n"),
    "NaN as text": lines(b"id,a\n", *(b"s%d,nan\n" % i for i in range(N))),
    "infinite": lines(b"id,a\n", *(b"s%d,1e999\n" % i for i in range(N))),
    "dates": lines(b"id,a\n", *(b"s%d,2020-01-01\n" % i for i in range(N))),
    "times before 1970": lines(b"id,a\n", *(b"s%d,0001-01-01 00:00:00\n" % i for i in range(N))),
    "true": lines(b"id,a\n", *(b"s%d,true\n" % i for i in range(N))),
    "no newline": lines(b"id,a"),
    "only newlines": lines(b"\n" * (1 << 22)),
}


def written(table, groups=1, **options):
    """A file with a table `groups` times."""

    def write(file):
        found = table()
        with parquet.ParquetWriter(file, found.schema, **options) as out:
            for _ in range(groups):
                out.write_table(found)

    return replaced("tables/audio.parquet", write)


def repeated(value, kind, rows):
    """One value `rows` times: some bytes on disk."""
    return lambda: pa.table({
        "id": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["s"]),
        "a": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value], kind)),
    })  # fmt: skip


def zeros(rows):
    return lambda: pa.table({"id": np.zeros(rows), "a": np.zeros(rows)})


def more_rows(file):
    """A footer that states 2^40 rows."""
    parquet.write_table(pa.table({"id": ["a"] * 100, "a": np.arange(100.0)}), file, compression="none")
    raw = file.read_bytes()
    size = struct.unpack("<I", raw[-8:-4])[0]
    footer = raw[-8 - size : -8].replace(b"\x16\xc8\x01", b"\x16\x80\x80\x80\x80\x80\x40")
    file.write_bytes(raw[: -8 - size] + footer + struct.pack("<I", len(footer)) + b"PAR1")


ODD = {
    "lists": pa.array([[1.0, 2.0]] * N),
    "structs": pa.array([{"x": 1}] * N),
    "texts": pa.array(["x"] * N),
    "decimals": pa.array([1] * N).cast(pa.decimal128(38)),
    "bytes": pa.array([b"\xff"] * N),
    "nothing": pa.nulls(N),
    "dates": pa.array([2**30] * N, pa.int32()).cast(pa.date32()),
    "late times": pa.array([2**62] * N, pa.timestamp("us")),
    "zoned times": pa.array([2**62] * N, pa.timestamp("us", tz="Mars/Phobos")),
    "durations": pa.array([2**62] * N, pa.duration("s")),
    "halves": pa.array(np.ones(N, np.float16)),
    "with nothing": pa.array([1, None] * (N // 2)),
}
PARQUET = {
    f"column of {name}": written(lambda column=column: pa.table({"id": [f"s{i}" for i in range(N)], "a": column}))
    for name, column in ODD.items()
} | {
    f"ids of {name}": written(lambda column=column: pa.table({"id": column, "a": np.arange(N)}))
    for name, column in ODD.items()
} | {
    "5 10^7 numbers in runs": written(repeated(1.0, pa.float64(), 5 * 10**6), 10),
    "texts of 4 GB in a run": written(repeated("x" * 4096, pa.string(), 10**6)),
    "10^6 ids": written(lambda: pa.table({"id": np.arange(10**6), "a": np.zeros(10**6)})),
    "2^40 rows stated": replaced("tables/audio.parquet", more_rows),
    "5 10^7 zeros, compressed": written(zeros(5 * 10**6), 10, compression="zstd", use_dictionary=False),
    "10^7 zeros, compressed": written(zeros(5 * 10**6), 2, compression="zstd", use_dictionary=False),
    "texts of 300 MB": written(lambda: pa.table({"id": ["x" * 10**6] * 10, "a": [1.0] * 10}), 30, compression="zstd",
                               use_dictionary=False),
    "3 10^4 columns": written(lambda: pa.table({"id": ["s1"], **{f"c{i}": [1.0] for i in range(30_000)}})),
    "2000 row groups": written(lambda: pa.table({"id": ["s1"], "a": [1]}), 2000),
}  # fmt: skip


def file_or_folder(file):
    """The files of a folder can disagree with each other, so that none is to blame."""
    return [file.name, str(file.parent)]


FORMATS = {
    one.name: one
    for one in (
        Format(".mat v5", write_mat5, open_all("cells.mat", "matrices.mat"), crafted=MAT5,
               repack=repack_mat5),
        Format(".mat v7.3", write_mat73, open_all("cells.mat", "chunks.mat", "newest.mat"), crafted=MAT73),
        Format(".npz of tables", write_npz, open_all("stored.npz", "packed.npz"),
               crafted=hostile_npz("packed.npz", "X1", "X2"), repack=repack_npz),
        Format(".npz of images", write_images, read_images, crafted=IMAGES, repack=repack_npz),
        Format(".npy", write_npy, open_all("tables"), crafted=NPY, names=file_or_folder),
        Format(".csv", write_csv, open_all("tables"), crafted=CSV, names=file_or_folder),
        Format(".parquet", write_parquet, open_all("tables"), crafted=PARQUET, names=file_or_folder),
    )
}  # fmt: skip
