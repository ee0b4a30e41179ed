"""ArrayRecord files of any origin: their structure is checked before their records are read.

The reader of array_record verifies checksums but decompresses a record whatever its size, and some kilobytes may state
gigabytes. The sizes are in the headers of the chunks that records are compressed in, one record in a chunk here
(github.com/google/riegeli, doc/riegeli_records_file_format.md).
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

# Every 64 KiB begin with a block header: its hash, and the distances to the begin and the end of the chunk around it.
_BLOCK, _BLOCK_HEADER = 1 << 16, struct.Struct("<QQQ")
# Hash of the header, size and hash of the data, type and number of records, size of the decoded records.
_CHUNK = struct.Struct("<QQQQQ")
_TYPES = frozenset(b"srtpm")
# Decoded sizes: of a chunk, and of all chunks beyond this many times the file's size. Images and random signals are
# compressed to a half at best.
LARGEST, _TOTAL, _RATIO = 1 << 27, 1 << 29, 32


def check(path: Path, count: int) -> int:
    """Check an ArrayRecord file, and return the decoded size in bytes of its largest chunk.

    A damaged chunk is passed over: reading its records raises an error.

    Args:
      path: the file.
      count: its number of records.

    Raises:
      ValueError: the file is not readable, has another number of records, or states absurd sizes.
    """
    from array_record.python.array_record_module import ArrayRecordReader

    try:
        largest = _largest(path, count)
        reader = ArrayRecordReader(str(path))
        there = reader.num_records()
        reader.close()
    except Exception as error:  # array_record raises a RuntimeError or an IndexError, others may follow
        raise ValueError(f"{path} is not a readable ArrayRecord file: {error}") from error
    if there != count:
        raise ValueError(f"{path} has {there} records, expected {count}")
    return largest


def _largest(path: Path, count: int) -> int:
    largest = total = 0
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        # A chunk for each record, one for the footer, and padding in each block.
        most = count + 2 * (size // _BLOCK + 2)
        for number, decoded in enumerate(_decoded_sizes(file.fileno(), size)):
            largest, total = max(largest, decoded), total + decoded
            if number > most or largest > LARGEST or total > _TOTAL + _RATIO * size:
                raise ValueError(
                    f"{size} bytes state {number + 1} chunks of {total} decoded bytes, the largest of {largest}, of "
                    f"which at most {LARGEST} are read"
                )
    return largest


def _decoded_sizes(file: int, size: int) -> Iterator[int]:
    """Decoded size of each chunk; after a damaged one, of those from the next block on."""
    at = 0
    while at < size:
        header, begin = _read(file, at, _CHUNK.size)
        if len(header) < _CHUNK.size:
            return
        _, stored, _, kind, decoded = _CHUNK.unpack(header)
        end = _after(begin, stored)
        if kind & 255 in _TYPES and stored <= size and end <= size:
            yield decoded
        else:
            block = (at // _BLOCK + 1) * _BLOCK
            raw = os.pread(file, _BLOCK_HEADER.size, block)
            end = block + _BLOCK_HEADER.unpack(raw)[2] if len(raw) == _BLOCK_HEADER.size else size
        at = max(end, at + 1)


def _read(file: int, at: int, count: int) -> tuple[bytes, int]:
    """`count` bytes from a position, without block headers, and the position after them."""
    end = _after(at, count)
    raw = os.pread(file, end - at, at)
    if at % _BLOCK == 0:
        raw = raw[_BLOCK_HEADER.size :]
    elif (edge := _BLOCK - at % _BLOCK) < len(raw):
        raw = raw[:edge] + raw[edge + _BLOCK_HEADER.size :]
    return raw[:count], end


def _after(at: int, count: int) -> int:
    """The position `count` bytes after `at`, where block headers do not count."""
    room = _BLOCK - _BLOCK_HEADER.size
    inside = max(at % _BLOCK - _BLOCK_HEADER.size, 0)
    blocks, rest = divmod(inside + count, room)
    begin = at // _BLOCK * _BLOCK
    if count and rest == 0:  # at the end of a block, not in the next one
        return begin + blocks * _BLOCK
    return begin + blocks * _BLOCK + (_BLOCK_HEADER.size + rest if count else at % _BLOCK)
