"""Many secrets looked for at once, in output that holds next to none of them.

One byte is found ten times faster than a text (memchr(3)).  So each secret is known by an anchor: one of its
bytes, and the three that follow it.  Of what this output seldom has, a few bytes serve all secrets; where it
has all of them often (base64), the secrets are looked for one by one.  What is found is the same.
"""

from __future__ import annotations

from .secrets import merged, secret_spans, stretches

_KEY = 4  # bytes of an anchor
_HEAD = 64  # it begins in so many of a secret's first bytes: to plan with all of a long one takes long
_SAMPLE = 4096  # bytes of output that show which ones are rare
_PLAN_BYTES = 1 << 20  # a plan costs as much as a search: at most one for so much output
# What a search costs, one pass for a byte being 1: a stop at each byte that the sample has, and a text.
_STOP, _TEXT = 4, 8
_STOPS = 64  # and comparisons are always allowed


class Anchor:
    """A byte, and the secrets that are known by it."""

    __slots__ = ("_byte", "_places", "secrets")

    def __init__(self, byte: int, secrets: list[bytes]) -> None:
        self.secrets = secrets
        self._byte = byte
        self._places: dict[bytes, list[tuple[int, bytes]]] = {}  # by the anchor: where it is in which secret
        for secret in secrets:
            at = secret.index(byte)
            self._places.setdefault(secret[at : at + _KEY], []).append((at, secret))

    def search(self, data: bytes, found: list[tuple[int, int]]) -> bool:
        """Add where its secrets stand; False, and perhaps not all of them, where the byte is too frequent."""
        byte, places = self._byte, self._places
        stops = _STOPS + len(data) * len(self.secrets) // 1024
        at = data.find(byte)
        while at >= 0:
            known = places.get(data[at : at + _KEY], ())
            for offset, secret in known:
                begin = at - offset
                if begin >= 0 and data.startswith(secret, begin):
                    found.append((begin, begin + len(secret)))
            stops -= 1 + len(known)
            if stops <= 0:
                return False
            at = data.find(byte, at + 1)
        return True


class Needles:
    """What `secret_spans` finds, in one piece of output after the other."""

    __slots__ = ("_anchors", "_due", "_one_by_one", "_seen")

    def __init__(self, secrets: list[bytes]) -> None:
        self._anchors: list[Anchor] = []
        self._one_by_one = secrets
        self._due = True  # is there reason for another plan?
        self._seen = _PLAN_BYTES  # since the last one

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """(start, end) of secret bytes, in order, overlapping and touching ones merged."""
        self._seen += len(data)
        if self._due and len(data) >= _SAMPLE and self._seen >= _PLAN_BYTES:
            self._plan(data)
        if not self._anchors:
            return secret_spans(data, self._one_by_one)
        found: list[tuple[int, int]] = []
        for anchor in self._anchors:
            if not anchor.search(data, found):
                self._due = True
                for secret in anchor.secrets:
                    found += stretches(data, secret)
        for secret in self._one_by_one:
            found += stretches(data, secret)
        return merged(found)

    def _plan(self, data: bytes) -> None:
        secrets = [*self._one_by_one, *(secret for anchor in self._anchors for secret in anchor.secrets)]
        step = len(data) // _SAMPLE | 1  # odd: lines are often of an even length
        self._anchors, self._one_by_one = plan(secrets, data[::step])
        self._seen = 0
        self._due = bool(self._one_by_one)  # what follows may suit them better


def plan(secrets: list[bytes], sample: bytes) -> tuple[list[Anchor], list[bytes]]:
    """Anchors for output like ``sample``, and the secrets that have none that is worth it."""
    owners: dict[int, set[bytes]] = {}
    for secret in secrets:
        for byte in set(secret[: 1 - _KEY][:_HEAD]):
            owners.setdefault(byte, set()).add(secret)
    costs = {byte: 1 + _STOP * sample.count(byte) for byte in owners}
    anchors: list[Anchor] = []
    left = set(secrets)
    while owners:
        byte = max(owners, key=lambda one: (len(owners[one]) / costs[one], one))
        known = owners[byte]
        if costs[byte] > _TEXT * len(known):
            break
        anchors.append(Anchor(byte, sorted(known)))
        left -= known
        owners = {one: rest for one, all_ in owners.items() if (rest := all_ - known)}
    return anchors, sorted(left)
