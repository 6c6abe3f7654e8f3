"""The keys that leave an attached terminal."""

from __future__ import annotations

from durable_supervisor.model.errors import invalid

DEFAULT = "ctrl-],d"
_MOST = 8


def parse(text: str) -> bytes:
    """The bytes of ``ctrl-],d``: keys with commas between, each ``ctrl-X`` or one plain character."""
    keys = [_key(word) for word in text.split(",")]
    if len(keys) > _MOST:
        raise invalid("detach-key", f"has more than {_MOST} keys")
    return bytes(keys)


def shown(text: str) -> str:
    """For a person: ``ctrl-] d``."""
    return text.replace(",", " ")


def _key(word: str) -> int:
    if len(word) == 1 and "!" <= word <= "~":
        return ord(word)
    name, _, letter = word.lower().partition("-")
    if name == "ctrl" and len(letter) == 1 and (letter.isalpha() or letter in "@[\\]^_") and letter.isascii():
        return ord(letter.upper()) & 0x1F  # as terminals do since ASCII
    raise invalid("detach-key", "is made of keys such as ctrl-] or d, with commas between", f"use {DEFAULT}")


class DetachKeys:
    """Finds the sequence in what is typed, also across reads; without keys there is none to find.

    What only began like it goes to the program after all.  The first key twice
    sends it once, unless that already is the sequence.
    """

    def __init__(self, keys: bytes) -> None:
        self._keys = keys
        self._matched = 0

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """What is for the program, and whether the sequence was completed; what follows it is dropped."""
        if not self._keys:
            return data, False
        passed = bytearray()
        for byte in data:
            if byte == self._keys[self._matched]:
                self._matched += 1
                if self._matched == len(self._keys):
                    self._matched = 0
                    return bytes(passed), True
                continue
            doubled = self._matched == 1 and byte == self._keys[0]
            passed += self._keys[: self._matched]
            self._matched = 0
            if doubled:
                continue
            if byte == self._keys[0]:
                self._matched = 1
            else:
                passed.append(byte)
        return bytes(passed), False
