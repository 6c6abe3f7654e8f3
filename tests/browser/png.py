"""As much of PNG (RFC 2083) as a look at a screenshot needs: 8 bits a channel, not interlaced."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path


def pixels(path: Path) -> list[list[tuple[int, ...]]]:
    """Rows of (red, green, blue) or (red, green, blue, alpha)."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, packed = 8, b""
    width = height = channels = 0
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert (depth, interlaced) == (8, 0)
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    return _rows(zlib.decompress(packed), width, height, channels)


def _rows(raw: bytes, width: int, height: int, channels: int) -> list[list[tuple[int, ...]]]:
    size = width * channels
    before = bytes(size)
    rows = []
    for number in range(height):
        start = number * (size + 1)
        line = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + size]), before, channels)
        rows.append([tuple(line[at : at + channels]) for at in range(0, size, channels)])
        before = bytes(line)
    return rows


def _unfiltered(how: int, line: bytearray, above: bytes, channels: int) -> bytearray:
    for at in range(len(line)):
        left = line[at - channels] if at >= channels else 0
        corner = above[at - channels] if at >= channels else 0
        line[at] = (line[at] + _predicted(how, left, above[at], corner)) & 0xFF
    return line


def _predicted(how: int, left: int, up: int, corner: int) -> int:
    if how < 4:
        return (0, left, up, (left + up) // 2)[how]
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))
