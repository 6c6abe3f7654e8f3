"""The forms in which a secret may stand somewhere: as it is, or encoded as programs commonly do."""

from __future__ import annotations

import base64
import binascii
import json
from urllib.parse import quote_from_bytes

FORMS = ("plain", "base64", "hex", "url", "json", "terminal")


def disguises(secret: bytes) -> dict[bytes, str]:
    """What to look for, and which of `FORMS` it is.  What an encoding leaves as it is counts as plain."""
    found = {secret: "plain"}
    for form, texts in (
        ("base64", _base64(secret)),
        ("hex", _hex(secret)),
        ("url", _url(secret)),
        ("json", _json(secret)),
        ("terminal", [secret.replace(b"\n", b"\r\n")]),
    ):
        for text in texts:
            found.setdefault(text, form)
    return found


def _base64(secret: bytes) -> list[bytes]:
    """What is the same whatever stands before and after it: it may begin at any of three places of a
    group (RFC 4648)."""
    texts = []
    for shift, uncertain in ((0, 0), (1, 2), (2, 3)):
        whole, more = divmod(shift + len(secret), 3)
        certain = whole * 4 + more
        texts.append(base64.b64encode(b"\0" * shift + secret)[uncertain:certain])
    return texts + [text.translate(bytes.maketrans(b"+/", b"-_")) for text in texts]


def _hex(secret: bytes) -> list[bytes]:
    lower = binascii.hexlify(secret)
    return [lower, lower.upper(), binascii.hexlify(secret, ":"), binascii.hexlify(secret, " ")]


def _url(secret: bytes) -> list[bytes]:
    """With and without ``/`` (RFC 3986), of a form (``+`` for a space), in capitals and not."""
    texts = [quote_from_bytes(secret, safe=safe).encode("ascii") for safe in ("", "/")]
    texts += [text.replace(b"%20", b"+") for text in texts]
    return texts + [_lower_escapes(text) for text in texts]


def _lower_escapes(text: bytes) -> bytes:
    first, *rest = text.split(b"%")
    return b"%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _json(secret: bytes) -> list[bytes]:
    text = secret.decode("utf-8", "surrogateescape")
    exact = json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape")
    ascii_only = json.dumps(text)[1:-1].encode("ascii")
    return [form for one in (exact, ascii_only) for form in (one, one.replace(b"/", b"\\/"))]
