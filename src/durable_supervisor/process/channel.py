"""Frames over a Unix stream socket: a JSON object and raw bytes.

On the wire: u32 length of the JSON, u32 length of the bytes (little endian),
the JSON in ASCII, the bytes.  Spec, controls and their receipts travel so.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct

from ..model.compact import compact_encoder

_PREFIX = struct.Struct("<II")
_CHUNK = 64 * 1024
MAX_JSON = 64 * 1024 * 1024
MAX_BLOB = 1 << 30

_HEAD = b'{"type":"head","head":'
_encode = compact_encoder()
_decode = json.JSONDecoder().raw_decode  # json.loads guesses the encoding, and looks for spaces around it


class FrameError(Exception):
    """The peer sent something that is no frame; only its connection is given up."""


def encode_frame(message: dict[str, object], blob: bytes = b"") -> bytes:
    # ASCII JSON carries lone surrogates, which stand for undecodable bytes of argv and env.
    text = _encode(message).encode("ascii")
    return b"".join((_PREFIX.pack(len(text), len(blob)), text, blob))


def encode_head(head: int) -> bytes:
    """As `encode_frame` of ``{"type": "head", "head": head}``: the one frame that each event costs."""
    text = b"%b%d}" % (_HEAD, head)
    return _PREFIX.pack(len(text), 0) + text


def head_of(data: bytes) -> int:
    """The head, if ``data`` is one frame of `encode_head` and nothing more; else 0."""
    if not (data.startswith(_HEAD, _PREFIX.size) and data.endswith(b"}")):
        return 0
    digits = data[_PREFIX.size + len(_HEAD) : -1]
    whole = _PREFIX.unpack_from(data) == (len(data) - _PREFIX.size, 0)
    return int(digits) if whole and digits.isdigit() else 0


def read_frame(channel: socket.socket) -> tuple[dict[str, object], bytes] | None:
    """One frame from a blocking socket, and not a byte more; None when the peer closes it before.

    Raises FrameError.
    """
    prefix = _receive(channel, _PREFIX.size)
    return None if prefix is None else _read_body(channel, prefix)


def read_frame_with_fd(channel: socket.socket) -> tuple[dict[str, object], bytes, int] | None:
    """As `read_frame`, with the descriptor that came with the frame's first byte; -1 where none did.

    The kernel gives it to whoever reads that byte, and to nobody who reads only what is before it: who reads
    whole frames never takes it for another one's.  It stays open where the rest of its frame does not come.
    Raises OSError where one came and is lost, since no number was left for it, say; and FrameError.
    """
    prefix, fds, flags, _ = socket.recv_fds(channel, _PREFIX.size, 1, socket.MSG_CMSG_CLOEXEC)
    if flags & socket.MSG_CTRUNC:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    rest = _receive(channel, _PREFIX.size - len(prefix)) if prefix else None
    frame = None if rest is None else _read_body(channel, prefix + rest)
    return None if frame is None else (*frame, fds[0] if fds else -1)


def _read_body(channel: socket.socket, prefix: bytes) -> tuple[dict[str, object], bytes] | None:
    json_length, blob_length = _PREFIX.unpack(prefix)
    if json_length > MAX_JSON or blob_length > MAX_BLOB:
        raise FrameError("frame too large")
    body = _receive(channel, json_length + blob_length)
    return None if body is None else (_object(body[:json_length]), body[json_length:])


def _receive(channel: socket.socket, count: int) -> bytes | None:
    """All of so many bytes; None when the peer closes before."""
    received = channel.recv(min(count, _CHUNK)) if count else b""
    if len(received) == count:
        return received
    whole = bytearray(received)
    while received and len(whole) < count:
        received = channel.recv(min(count - len(whole), _CHUNK))
        whole += received
    return bytes(whole) if len(whole) == count else None


class FrameParser:
    """Bytes in, whole frames out.  ``max_bytes`` bounds one frame."""

    def __init__(self, max_json: int = MAX_JSON, max_blob: int = MAX_BLOB) -> None:
        self._buffer = bytearray()
        self._max_json = max_json
        self._max_blob = max_blob

    @property
    def between_frames(self) -> bool:
        """Is nothing there of a frame whose rest is to come?"""
        return not self._buffer

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


def _object(data: bytes | bytearray) -> dict[str, object]:
    try:
        text = data.decode()
        message, end = _decode(text)
    except (ValueError, RecursionError):
        raise FrameError("frame is not JSON") from None
    if not isinstance(message, dict) or end != len(text):
        raise FrameError("frame is not an object")
    return message
