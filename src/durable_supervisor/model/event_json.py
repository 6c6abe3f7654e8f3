"""An event as one line of JSON: byte for byte what `json` makes of its `Event.to_dict`, only faster.

Nearly all of that is the escaping of output, where `json` looks at each character twice, 2 ns a byte.
In long ASCII text with few escapes, each kind of them is replaced in the bytes themselves, in a third of
the time.
"""

from __future__ import annotations

import json

from .events import Event, Kind

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_WRITTEN = [_encode(chr(byte))[1:-1].encode("ascii") for byte in range(128)]
_PLAIN = bytes(byte for byte in range(128) if len(_WRITTEN[byte]) == 1)
_BACKSLASH = ord("\\")
_LONG = 2048  # with less there is nothing to be gained
_FEW = 24  # one escape in so many bytes: a replacement costs as much as `json` takes for some twenty


def to_json(event: Event) -> bytes:
    """ASCII, without a newline.  Raises ValueError when ``event.detail`` is no JSON."""
    escaped = _escaped(event.data) if event.kind == Kind.OUTPUT and len(event.data) >= _LONG else None
    if escaped is None:
        return _encode(event.to_dict()).encode("ascii")
    head = _encode(event.entry()).encode("ascii")
    return b'%b,"text":"%b"}' % (head[:-1], escaped)


def _escaped(data: bytes) -> bytes | None:
    """The inside of a JSON string; None where `json` is faster, or it is not ASCII."""
    if not data.isascii():
        return None
    special = data.translate(None, _PLAIN)
    if len(special) * _FEW > len(data):
        return None
    # The backslash first: every escape brings one more.  Of the others an escape has at most its own.
    for byte in sorted(set(special), key=_BACKSLASH.__ne__):
        data = data.replace(bytes([byte]), _WRITTEN[byte])
    return data
