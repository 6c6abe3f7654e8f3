"""Words of the command line turned into values.  Every refusal names the option."""

from __future__ import annotations

import os
import re
import signal as signals
from collections.abc import Iterable, Mapping

from durable_supervisor.model.errors import SupervisorError, invalid

# Compiled where they are needed: most command lines have no such word.
_SIZE = r"(?ia)([0-9]+)\s*([kmgt]?)(?:i?b)?"
_DURATION = r"(?ia)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|s|m|h|d)"
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def size(option: str, text: str) -> int:
    """Bytes: ``1000``, ``64K``, ``64M``, ``1G`` (powers of 1024; ``MB`` and ``MiB`` mean the same)."""
    match = re.fullmatch(_SIZE, text.strip())
    if match is None:
        raise invalid(option, "is not a size", "give bytes, or a number with K, M, G or T, such as 64M")
    return int(match[1]) * int(1024 ** _POWERS[match[2].lower()])


def seconds(option: str, text: str | None) -> float | None:
    """Seconds: ``90``, ``0.5``, ``500ms``, ``10m``, ``2h``, ``1d``.  The model judges the number."""
    if text is None:
        return None
    match = re.fullmatch(_DURATION, text.strip())
    if match is not None:
        return float(match[1]) * _SECONDS[match[2].lower()]
    try:
        return float(text)
    except ValueError:
        raise invalid(option, "is not a time", "give seconds, or 500ms, 10m, 2h, 1d") from None


def positive_seconds(option: str, text: str | None) -> float | None:
    """As `seconds`, for values that no model checks: finite and 0 or more."""
    value = seconds(option, text)
    if value is not None and not 0 <= value < 1e12:
        raise invalid(option, "must be a finite time of 0 or more")
    return value


def whole(option: str, text: str, *, least: int = 0) -> int:
    """A whole number of at least ``least``."""
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
        raise invalid(option, f"must be a whole number of at least {least}")
    return int(text)


def priority(text: str) -> int:
    """A whole number, also below 0; its bounds are the supervisor's."""
    digits = text[1:] if text.startswith(("+", "-")) else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise invalid("priority", "must be a whole number", "0 is the usual one, more goes first")
    return int(text)


def factor(option: str, text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise invalid(option, "must be a number above 0", "2 is twice as fast, 0.5 half as fast")
    return value


def pairs(option: str, items: Iterable[str]) -> dict[str, str]:
    """``K=V`` words; a later one wins over an earlier one."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise invalid(option, "must be NAME=VALUE")
        found[name] = value
    return found


def secret_pairs(items: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """``NAME=VALUE``, or ``NAME`` alone: the value comes from our own environment, unseen by ps(1)."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            if name not in environ:
                raise invalid(f"secret_env[{name}]", "is not set in this environment", f"export {name} first")
            value = environ[name]
        found[name] = value
    return found


def env_file(path: str) -> dict[str, str]:
    """``NAME=VALUE`` lines; blank lines and ``#`` comments are skipped, ``export `` is allowed.

    One pair of matching quotes around a value is taken off; nothing is expanded.
    """
    found: dict[str, str] = {}
    text = os.fsdecode(read_file("env_file", path))
    for number, raw in enumerate(text.split("\n"), start=1):
        entry = raw.strip()
        if not entry or entry.startswith("#"):
            continue
        name, equals, value = entry.removeprefix("export ").partition("=")
        if not equals or not name.strip():
            raise invalid("env_file", f"line {number} is not NAME=VALUE", "one variable a line")
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[name.strip()] = value
    return found


def read_file(option: str, path: str | int) -> bytes:
    """The bytes of a file the user named, or of a descriptor.  Raises INVALID_REQUEST with the reason."""
    try:
        with open(path, "rb", closefd=isinstance(path, str)) as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is not a usable path"
        raise invalid(option, f"cannot be read: {reason}", "check the path") from error


def signal_number(text: str) -> int:
    """``TERM``, ``SIGTERM``, ``sigterm`` or ``15``."""
    try:
        if text.isascii() and text.isdigit():
            return int(signals.Signals(int(text)))
        name = text.upper()
        return int(signals.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except (ValueError, KeyError):
        if text.isascii() and text.isdigit() and signals.SIGRTMIN <= int(text) <= signals.SIGRTMAX:
            return int(text)
        raise _bad_signal() from None


def _bad_signal() -> SupervisorError:
    return invalid("signal", "is not a signal of this system", "give a name or a number: TERM, USR1, 9")
