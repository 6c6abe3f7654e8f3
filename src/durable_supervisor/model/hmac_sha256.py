"""HMAC-SHA-256 (RFC 2104) without OpenSSL.

To load OpenSSL takes a third as long as a bare interpreter takes in all, and a command line has no other use
for it.  The interpreter's own SHA-256 is at hand; `random` takes its SHA-512 from there likewise.
"""

from __future__ import annotations

from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import _Hash, sha256
else:
    try:
        from _sha256 import sha256
    except ImportError:
        try:
            from _sha2 import sha256  # Python 3.12 and later
        except ImportError:  # an interpreter that was built without
            from hashlib import sha256

_BLOCK = 64
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_LONG = 256 * 1024  # bytes; beyond it OpenSSL, which uses what the processor has for it, is worth its loading


def hmac_sha256(key: bytes, text: bytes) -> bytes:
    """The 32 bytes."""
    if len(text) > _LONG:
        import hmac

        return hmac.digest(key, text, "sha256")
    begun = _begun(key)
    inner, outer = begun[0].copy(), begun[1].copy()
    inner.update(text)
    outer.update(inner.digest())
    return outer.digest()


@lru_cache(maxsize=4)  # a supervisor has one key, and some digests of each request
def _begun(key: bytes) -> tuple[_Hash, _Hash]:
    """The two hashes, up to where the text begins."""
    block = (key if len(key) <= _BLOCK else sha256(key).digest()).ljust(_BLOCK, b"\0")
    return sha256(block.translate(_INNER)), sha256(block.translate(_OUTER))
