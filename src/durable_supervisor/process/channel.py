"""Frames over a Unix stream socket: a JSON object and raw bytes.

On the wire: u32 length of the JSON, u32 length of the bytes (little endian),
the JSON in ASCII, the bytes.  Spec, controls and their receipts travel so.
"""

from __future__ import annotations

import array
import json
import socket
import struct

from ..model.compact import compact_encoder

_PREFIX = struct.Struct("<II")
_CHUNK = 64 * 1024
MAX_JSON = 64 * 1024 * 1024
MAX_BLOB = 1 << 30

_encode = compact_encoder()
_decode = json.JSONDecoder().raw_decode  # json.loads guesses the encoding, and looks for spaces around it


class FrameError(Exception):
    """The peer sent something that is no frame; only its connection is given up."""


def encode_frame(message: dict[str, object], blob: bytes = b"") -> bytes:
    # ASCII JSON carries lone surrogates, which stand for undecodable bytes of argv and env.
    text = _encode(message).encode("ascii")
    return b"".join((_PREFIX.pack(len(text), len(blob)), text, blob))


def send_fds(end: socket.socket, message: bytes, descriptors: list[int]) -> None:
    """Copies of ``descriptors`` to whoever has the other end, with a message that is not empty.

    Unlike `socket.send_fds`, never a SIGPIPE: a host may have let that end it again.  Raises OSError.
    """
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    end.sendmsg([message], [rights], socket.MSG_NOSIGNAL)


def read_frame(channel: socket.socket) -> tuple[dict[str, object], bytes] | None:
    """One frame from a blocking socket, and not a byte more; None when the peer closes it before.

    Raises FrameError.
    """
    parser = FrameParser()
    wanted = _PREFIX.size
    while True:
        data = channel.recv(min(wanted, _CHUNK))
        if not data:
            return None
        frames = parser.feed(data)
        if frames:
            return frames[0]
        wanted = parser.missing


class FrameParser:
    """Bytes in, whole frames out.  ``max_bytes`` bounds one frame."""

    def __init__(self, max_json: int = MAX_JSON, max_blob: int = MAX_BLOB) -> None:
        self._buffer = bytearray()
        self._max_json = max_json
        self._max_blob = max_blob

    def feed(self, data: bytes) -> list[tuple[dict[str, object], bytes]]:
        """The frames completed by ``data``.  Raises FrameError; the parser is then spent."""
        buffer = self._buffer
        buffer += data
        frames = []
        end = 0  # of the last whole frame
        while len(buffer) - end >= _PREFIX.size:
            json_length, blob_length = _PREFIX.unpack_from(buffer, end)
            if json_length > self._max_json or blob_length > self._max_blob:
                raise FrameError("frame too large")
            text_at = end + _PREFIX.size
            blob_at = text_at + json_length
            if len(buffer) < blob_at + blob_length:
                break
            end = blob_at + blob_length
            frames.append((_object(buffer[text_at:blob_at]), bytes(buffer[blob_at:end])))
        del buffer[:end]
        return frames

    @property
    def missing(self) -> int:
        """How many bytes, at least, complete the frame that has begun."""
        if len(self._buffer) < _PREFIX.size:
            return _PREFIX.size - len(self._buffer)
        return _PREFIX.size + int(sum(_PREFIX.unpack_from(self._buffer))) - len(self._buffer)


def _object(data: bytearray) -> dict[str, object]:
    try:
        text = data.decode()
        message, end = _decode(text)
    except (ValueError, RecursionError):
        raise FrameError("frame is not JSON") from None
    if not isinstance(message, dict) or end != len(text):
        raise FrameError("frame is not an object")
    return message
