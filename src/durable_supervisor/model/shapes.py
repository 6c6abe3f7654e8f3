"""What looks like a credential, whoever issued it: a public prefix (``sk-``, ``Bearer ``) and a body.

Only the body is secret.  It is judged by its first ``most`` bytes; a confirmed one goes on for as
long as its alphabet does.  ``docs/redaction.md`` has the same table for people.
"""

from __future__ import annotations

from collections.abc import Callable

SHORTEST = 18  # the shortest word that is a token, prefix included

UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = b"0123456789"
_ALNUM = UPPER + UPPER.lower() + DIGITS
WORD = _ALNUM + b"_-"
_CREDENTIAL = _ALNUM + b"-._~+/="  # of an Authorization header (RFC 9110, token68)
_ARMOUR = _ALNUM + b"+/=-:,\\ \t\r\n"  # of a PEM file (RFC 7468) and its old headers, also as a JSON string
_PASSWORD = bytes(byte for byte in range(33, 127) if byte not in b"/?#\"'<>\\^`{|}")  # RFC 3986, and "@"
USER = bytes(byte for byte in _PASSWORD if byte not in b":@")
DASHES = b"-----"
LONGEST_USER = 64
LONGEST_LABEL = 11  # "ENCRYPTED " before "PRIVATE KEY"


def marked(letters: bytes) -> bytes:
    """For `bytes.translate`: these become ``w``, all others a space."""
    return bytes(ord("w") if byte in letters else ord(" ") for byte in range(256))


_IS_BASE64, _LONG_LINE = marked(_ALNUM + b"+/="), b"w" * 32


class Shape:
    """``likely`` judges the first ``most`` bytes of a body, or less where its alphabet or ``stop`` ends it:
    how many of them are secret, 0 for none.  Unless ``whole``, more bytes never take back a yes.
    ``rest`` are the bytes that it goes on with; None: with none.
    """

    __slots__ = ("alphabet", "likely", "most", "name", "rest", "stop", "whole")

    def __init__(
        self,
        name: str,
        likely: Callable[[bytes], int],
        *,
        most: int,
        alphabet: bytes = WORD,
        rest: bytes | None = WORD,
        stop: bytes = b"",
        whole: bool = False,
    ) -> None:
        self.name = name
        self.likely = likely
        self.most = most
        self.alphabet = alphabet
        self.rest = rest
        self.stop = stop
        self.whole = whole


def _random(least: int, unlike_words: int = 3, letters: bytes = WORD) -> Callable[[bytes], int]:
    """At least so many bytes, the first ones of these letters, and digits or capitals among them:
    a name in lower case is none."""

    def likely(body: bytes) -> int:
        plain = len(body) >= least and not body[:least].strip(letters)
        return len(body) if plain and len(body.translate(None, _NO_WORDS)) >= unlike_words else 0

    return likely


_NO_WORDS = bytes(byte for byte in range(256) if byte not in UPPER + DIGITS)


def _access_key(body: bytes) -> int:
    """Exactly 16 of base 32: in capitals alone, a longer or shorter word is a name."""
    return 16 if len(body) == 16 and not body.strip(UPPER + DIGITS) else 0


def _jwt(body: bytes) -> int:
    """What follows ``eyJ`` (``{"`` in base64): the rest of the header, a dot, and a payload."""
    header, _, payload = body.partition(b".")
    return len(body) if len(header) >= SHORTEST - 3 and len(payload.partition(b".")[0]) >= 16 else 0


def _armoured(body: bytes) -> int:
    """To the end of the first line of base64: without one, it is a text about keys."""
    mapped = body.replace(b"\\n", b"  ").translate(_IS_BASE64)
    begin = mapped.find(_LONG_LINE)
    end = mapped.find(b" ", begin)
    return 0 if begin < 0 else end if end >= 0 else len(body)


def _password(body: bytes) -> int:
    """All before the last ``@`` of what may be the authority; ``%s`` is a template."""
    end = body.rfind(b"@")
    return end if end >= 3 else 0


# Words: a body that follows one of these prefixes, which begins its word.
WORDS: tuple[tuple[bytes, Shape], ...] = (
    (b"sk-", Shape("api_key", _random(20), most=40)),
    *((b"gh%c_" % kind, Shape("github", _random(36, letters=_ALNUM), most=36)) for kind in b"pousr"),
    (b"github_pat_", Shape("github", _random(22), most=40)),
    (b"AKIA", Shape("aws", _access_key, most=17, whole=True)),
    (b"ASIA", Shape("aws", _access_key, most=17, whole=True)),
    *((b"xox%c-" % kind, Shape("slack", _random(15), most=40)) for kind in b"baprs"),
    (b"glpat-", Shape("gitlab", _random(20), most=40)),
    (b"AIza", Shape("google", _random(35), most=35)),
    (b"npm_", Shape("npm", _random(36, letters=_ALNUM), most=36)),
    (b"eyJ", Shape("jwt", _jwt, most=4096, alphabet=WORD + b".", rest=WORD + b".")),
)
WORD_PREFIXES = tuple(prefix for prefix, _ in WORDS)

BEARER = Shape("bearer", _random(20, letters=_CREDENTIAL), most=40, alphabet=_CREDENTIAL, rest=_CREDENTIAL)
HEADER = Shape(
    "authorization", _random(8, 2, letters=_CREDENTIAL), most=64, alphabet=_CREDENTIAL, rest=_CREDENTIAL
)
PEM = Shape(
    "private_key",
    _armoured,
    most=256,
    alphabet=_ARMOUR,
    rest=bytes(byte for byte in range(256) if byte not in b"-"),
    stop=DASHES,
)
URL = Shape("url_password", _password, most=256, alphabet=_PASSWORD, rest=None, whole=True)


AUTHORIZATION = tuple(
    between + scheme
    for between in (b": ", b":", b'": "', b'":"', b"': '", b"=")
    for scheme in (b"Basic ", b"basic ", b"Bearer ", b"bearer ", b"Token ", b"token ")
)
