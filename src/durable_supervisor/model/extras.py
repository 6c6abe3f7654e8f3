"""Libraries that come with an extra of this package, and what is said where one is missing."""

from __future__ import annotations

from .errors import ErrorCode, Phase, SupervisorError

# Of those that several extras bring, the smallest.
_EXTRAS = {
    "aiohttp": "daemon",
    "h11": "client",
    "multidict": "daemon",
    "prometheus_client": "daemon",
    "rich": "cli",
    "typer": "cli",
    "wsproto": "client",
}


def library_of(error: ImportError) -> str:
    """The package that could not be imported."""
    return (error.name or "").partition(".")[0]


def extra_of(error: ImportError) -> str | None:
    """The extra that brings it; None where none does: it is a bug then, or a broken installation."""
    return _EXTRAS.get(library_of(error))


def extra_missing(what: str, library: str, extra: str, phase: Phase) -> SupervisorError:
    """``EXTRA_MISSING``: ``what`` needs it."""
    return SupervisorError(
        ErrorCode.EXTRA_MISSING,
        f"{what} needs {library}, which is not installed, or too old",
        phase=phase,
        hint=f"pip install 'durable-supervisor[{extra}]'",
        details={"extra": extra, "library": library},
    )
