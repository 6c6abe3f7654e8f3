"""What the benchmark passes around: rows of the table, peers' figures, and the context of a run."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

Numbers = Mapping[str, float]
_LARGE = 1024 * 1024  # bytes of a file


class NotMeasured(Exception):
    """This cannot be measured here; the text says why, and goes into the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    ``value`` is what `targets.TARGETS[key]` judges, in that target's unit; None with
    ``why_not`` where it could not be measured.  ``measured`` are the figures behind it
    (``*_ms``, ``*_mb``, counts), ``baseline`` those taken around it.
    """

    key: str
    value: float | None
    measured: Numbers = field(default_factory=dict)
    baseline: Numbers = field(default_factory=dict)
    note: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """One peer on the same work; what it cannot do is absent, with the reason in ``note``.

    Keys of ``figures``: ``acked_ms``, ``exit_known_ms`` (p50), ``runs_per_s`` (16 at once),
    ``mb_per_s`` (100 MB streamed), ``idle_mb`` (PSS of each of 50 idle jobs, without the program itself).
    """

    name: str
    version: str = ""
    durability: str = ""
    figures: Numbers = field(default_factory=dict)
    baseline: Numbers = field(default_factory=dict)
    note: str = ""
    skipped: str = ""


@dataclass(slots=True)
class Context:
    """Where a run works and how much it does."""

    work: Path  # on the file system that is measured
    quick: bool = False
    tools: dict[str, Path] = field(default_factory=dict)  # compiled programs by name
    venv: Path | None = None  # the bench's own environment, with the Python peers
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def tool(self, name: str) -> str:
        """The path of a compiled helper.  Raises NotMeasured where it could not be compiled."""
        if name not in self.tools:
            raise NotMeasured(f"{name} could not be compiled (gcc is missing)")
        return str(self.tools[name])

    @contextmanager
    def directory(self, name: str) -> Iterator[Path]:
        """A new private directory.  Its room is given back afterwards, its files only with ``work`` itself.

        To make a file ext4 passes over every inode that was deleted in the last minutes (recently_deleted
        in its ialloc.c): what one figure removes would slow each file that the next one makes, by
        up to a sixth of all the CPU that a run takes.
        """
        path = self.work / f"{name}-{next(self._numbers)}"
        path.mkdir(mode=0o700, parents=True)
        try:
            yield path
        finally:
            for folder, _, names in os.walk(path):
                _empty_large(os.path.join(folder, name) for name in names)


def _empty_large(files: Iterable[str]) -> None:
    for file in files:
        with suppress(OSError):  # gone meanwhile, or no file that has a size
            status = os.lstat(file)
            if stat.S_ISREG(status.st_mode) and status.st_size > _LARGE:
                os.truncate(file, 0)
