"""What a disk may hold after a power loss: what was synced, and of the rest any blocks and any names.

The shim's trace is replayed up to some moment.  A file's blocks and a directory's names are told
apart: each 4 KiB block of a file, and its size, is as of the file's last sync, or as of any write since; each
name is as of its directory's last sync, or as of any change since.  A file that was made without a name keeps
the one that it was given only if a sync of its own has counted it: until then whoever mends the file
system may take it for a file of nobody's.  File systems keep more order; none promises it.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from tests.lab.disk.faults import Call

BLOCK = 4096
_ENTRY = struct.Struct("@IBBHIIQQ")
_MAGIC = 0x1AB0
_NAMELESS = " (deleted)"


@dataclass(frozen=True)
class Step:
    """One call that changed something, or began to sync it.

    ``path``: where the file is now.  Of one without a name what /proc calls it, until it gets one; of a link
    the new name, and ``other`` is what it was called before.
    """

    call: Call
    role: int
    thread: int
    path: str
    other: str
    offset: int
    data: bytes


def read_trace(path: Path) -> list[Step]:
    return list(_with_names(_steps(path.read_bytes())))


def _with_names(steps: Iterator[Step]) -> Iterator[Step]:
    """In /proc a file that was made without a name has none for ever, whoever writes to it."""
    given: dict[str, str] = {}
    for step in steps:
        path = step.path.removesuffix(_NAMELESS)
        if step.call is Call.CREATE:
            given.pop(path, None)  # its number was another's before
        elif step.call is Call.LINK:
            step = replace(step, other=step.other.removesuffix(_NAMELESS))
            given[step.other] = path
        yield replace(step, path=given.get(path, path))


def _steps(data: bytes) -> Iterator[Step]:
    at = 0
    while at < len(data):
        magic, call, role, name_size, thread, more, offset, length = _ENTRY.unpack_from(data, at)
        assert magic == _MAGIC
        at += _ENTRY.size
        name, at = os.fsdecode(data[at : at + name_size]), at + name_size
        other, at = os.fsdecode(data[at : at + more]), at + more
        size = length if call == Call.WRITE else 0
        yield Step(Call(call), role, thread, name, other, offset, data[at : at + size])
        at += size


class Began(NamedTuple):
    """The newest versions that a sync is about to bring to the disk."""

    blocks: dict[int, int]
    size: int
    links: int


@dataclass
class File:
    """``versions``: of each block, its synced content first, then what each write since made of it.

    ``sizes``: likewise.  ``links``: how many names it has, likewise, where it was made without one.
    """

    sizes: list[int] = field(default_factory=lambda: [0])
    versions: dict[int, list[bytes]] = field(default_factory=dict)
    links: list[int] = field(default_factory=lambda: [1])

    @property
    def size(self) -> int:
        return self.sizes[-1]

    def write(self, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            number, inside = divmod(offset + at, BLOCK)
            piece = data[at : at + BLOCK - inside]
            versions = self.versions.setdefault(number, [bytes(BLOCK)])
            last = versions[-1]
            versions.append(last[:inside] + piece + last[inside + len(piece) :])
            at += len(piece)
        self.sizes.append(max(self.size, offset + len(data)))

    def truncate(self, size: int) -> None:
        if size < self.size:
            number, inside = divmod(size, BLOCK)
            for beyond in [one for one in self.versions if one > number]:
                self.versions[beyond].append(bytes(BLOCK))
            if number in self.versions:
                self.versions[number].append(self.versions[number][-1][:inside] + bytes(BLOCK - inside))
        self.sizes.append(size)

    def begin_sync(self) -> Began:
        """How far all had come when the sync began: what is written meanwhile may not be covered."""
        blocks = {number: len(versions) - 1 for number, versions in self.versions.items()}
        return Began(blocks, len(self.sizes) - 1, len(self.links) - 1)

    def end_sync(self, began: Began) -> None:
        for number, index in began.blocks.items():
            self.versions[number] = self.versions[number][index:] or [bytes(BLOCK)]
        del self.sizes[: began.size], self.links[: began.links]

    def survivor(self, dice: random.Random, keep: float) -> bytes:
        """One content that it may have: each block kept whole with probability ``keep``, else any version."""
        content = bytearray()
        for number in range((self.size + BLOCK - 1) // BLOCK):
            versions = self.versions.get(number, [bytes(BLOCK)])
            content += versions[-1] if dice.random() < keep else dice.choice(versions)
        size = self.size if dice.random() < keep else dice.choice(self.sizes)
        return bytes(content[:size].ljust(size, b"\0"))

    def is_counted(self, dice: random.Random, keep: float) -> bool:
        """Does it know of its name?"""
        return bool(self.links[-1] if dice.random() < keep else dice.choice(self.links))


@dataclass
class Names:
    """A directory.  ``synced``: what its last sync had; ``since``: each change, in order."""

    synced: dict[str, object] = field(default_factory=dict)
    since: list[tuple[str, object]] = field(default_factory=list)

    def survivor(self, dice: random.Random, keep: float) -> dict[str, object]:
        """Changes of one name stay in order; which names' changes made it to the disk is anybody's guess."""
        found = dict(self.synced)
        for name in dict.fromkeys(name for name, _ in self.since):
            changes = [what for one, what in self.since if one == name]
            kept = len(changes) if dice.random() < keep else dice.randrange(len(changes) + 1)
            if kept:
                found[name] = changes[kept - 1]
        return {name: what for name, what in found.items() if what is not None}


class Disk:
    """A tree below ``root``, as the calls so far made it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.names: dict[str, Names] = {root: Names()}
        self.now: dict[str, object] = {}
        self._nameless: dict[str, File] = {}
        self._syncs: dict[tuple[int, str], Began] = {}

    def apply(self, step: Step) -> None:
        path = step.path
        found = self._nameless.get(path) or self.now.get(path)
        if step.call is Call.CREATE:
            self._create(path)
        elif step.call is Call.LINK:
            self._link(step.other, path)
        elif step.call is Call.MKDIR:
            self.names[path] = Names()
            self._name(path, self.names[path])
        elif step.call is Call.UNLINK:
            self._name(path, None)
        elif step.call is Call.RENAME:
            self._name(step.other, found)
            self._name(path, None)
        elif step.call is Call.SYNC_DIR:
            self._sync_names(path)
        elif isinstance(found, File):
            self._change(found, step, path)

    def _create(self, path: str) -> None:
        if "/#" in path:
            self._nameless[path] = File(links=[0])
        else:
            self._name(path, File())

    def _link(self, nameless: str, path: str) -> None:
        file = self._nameless.pop(nameless)
        file.links.append(1)
        self._name(path, file)

    def _name(self, path: str, what: object) -> None:
        if what is None:
            self.now.pop(path, None)
        else:
            self.now[path] = what
        folder, _, name = path.rpartition("/")
        if folder in self.names:
            self.names[folder].since.append((name, what))

    def _sync_names(self, path: str) -> None:
        if path in self.names:
            names = self.names[path]
            names.synced |= dict(names.since)
            names.since.clear()

    def _change(self, file: File, step: Step, path: str) -> None:
        if step.call is Call.WRITE:
            file.write(step.offset, step.data)
        elif step.call is Call.TRUNCATE:
            file.truncate(step.offset)
        elif step.call is Call.SYNC_BEGAN:
            self._syncs[step.thread, path] = file.begin_sync()
        elif step.call is Call.SYNC and (began := self._syncs.pop((step.thread, path), None)):
            file.end_sync(began)

    def image(self, target: Path, dice: random.Random, keep: float) -> None:
        """Write one of the trees that may be found when the power is back."""
        self._image(self.names[self.root], target, dice, keep)

    def _image(self, names: Names, target: Path, dice: random.Random, keep: float) -> None:
        target.mkdir(mode=0o700)
        for name, what in names.survivor(dice, keep).items():
            path = target / name
            if isinstance(what, Names):
                self._image(what, path, dice, keep)
            elif isinstance(what, File) and what.is_counted(dice, keep):
                path.touch(mode=0o600)
                path.write_bytes(what.survivor(dice, keep))
