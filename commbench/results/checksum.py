"""The checksum at the end of each line of a journal.

It is the CRC-32 of all bytes of the file before it. So a line that was changed, doubled, moved or
removed is found at this line or the next.
"""

from __future__ import annotations

from zlib import crc32

CHECKSUM = "crc32"
"""The last key of a line."""
_TAIL = ', "%s": "%08x"}\n'
_TAIL_BYTES = len(_TAIL % (CHECKSUM, 0))


def seal(text: str, before: int) -> bytes:
    """The line of a JSON object, with its checksum; `before` is the CRC-32 of the lines before."""
    body = text[:-1].encode()
    return body + (_TAIL % (CHECKSUM, crc32(body, before))).encode()


def verify(line: bytes, before: int) -> int | None:
    """The CRC-32 of all bytes up to the end of a line; None where the line has not the checksum
    that it was written with, after the same lines."""
    own = crc32(memoryview(line)[:-_TAIL_BYTES], before)
    tail = line[-_TAIL_BYTES:]
    return crc32(tail, own) if tail == (_TAIL % (CHECKSUM, own)).encode() else None
