"""The workshop of an import: a bundle's private copy, checked whole and laid out, before it gets its name."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from functools import partial

from ...bundle.archive import Archive
from ...bundle.check import check_bundle
from ...bundle.contents import JOURNAL, RUN, Manifest
from ...bundle.told import Told
from ...bundle.unpack import check_room, unpack
from ...model.errors import ErrorCode, Phase, SupervisorError
from ...model.importing import ImportMark
from ...model.verify import VerifyReport
from ...process.failpoints import failpoint
from ...runlog.create import read_header
from ...runlog.files import NotRegularError, create_file, fsync_dir, list_segments, make_dir, open_regular
from ...runlog.paths import RunPaths
from ...runlog.tree import sync_all
from ..state.state_dir import StateDir
from .files import FORMAT
from .imported import BUNDLE, LOGS, MARK, WORKSHOP, homes, name_of
from .plan import Staged, refusal


class Workshop:
    """Of one directory; for one bundle at a time.  Every method may raise OSError.

    ``check`` raises where nobody wants the rest any more.
    """

    def __init__(self, place: StateDir, check: Callable[[], None]) -> None:
        self._place = place
        self._path = os.path.join(place.imported, WORKSHOP)
        self._check = check

    def stage(self, path: str) -> Staged:
        """Raises ``INVALID_REQUEST`` for what is no whole and true bundle, ``NO_SPACE``."""
        with Archive(path) as archive:  # what is none at all is refused before anything is written
            self._make()
            size = archive.size
            unpacked = sum(member.size for member in archive.manifest.members.values())
            check_room(path, self._path, size + unpacked)
            sha256 = self._write(BUNDLE, archive.raw(size))
        failpoint("import.copied")
        with Archive(os.path.join(self._path, BUNDLE)) as copy:  # nobody else can change it from here on
            copy.path = path
            told = self._checked(copy)
            paths = RunPaths(os.path.join(self._path, LOGS), copy.manifest.shard, copy.manifest.run_id)
            for name in (RUN, JOURNAL):
                self._write(name, copy.chunks(name))
            return Staged(copy.manifest, told, _origin(paths, copy.manifest.attempts), sha256)

    def known(self, run_id: str) -> Manifest | None:
        """What the same run was imported with."""
        for home in homes(self._place.imported):
            if home.run_id == run_id:
                with Archive(home.file(BUNDLE)) as archive:
                    return archive.manifest
        return None

    def keep(self, staged: Staged, serial: int, now_ns: int, by_uid: int) -> None:
        """Give it its name: with that, the directory has all of it, durably."""
        mark = ImportMark(
            directory_id=staged.directory_id,
            imported_ns=now_ns,
            by_uid=by_uid,
            version=staged.manifest.version,
            sha256=staged.sha256,
        )
        form = {"format": FORMAT, **mark.to_dict()}
        self._write(MARK, [json.dumps(form, indent=1).encode("ascii")])
        sync_all(self._path)
        failpoint("import.synced")
        folder = self._place.imported
        home = os.path.join(folder, name_of(serial, staged.manifest.run_id))
        os.rename(self._path, home)
        failpoint("import.renamed")
        try:
            fsync_dir(folder)
        except OSError:
            os.rename(home, self._path)  # its name may not last: it is refused, so nothing of it may be seen
            raise

    def clear(self) -> None:
        """Remove what there is, as far as that can be done."""
        shutil.rmtree(self._path, ignore_errors=True)

    def _make(self) -> None:
        folder = self._place.imported
        if not os.path.lexists(folder):
            make_dir(folder)
            fsync_dir(self._place.path)
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        self.clear()
        make_dir(self._path)

    def _checked(self, copy: Archive) -> Told:
        report = VerifyReport(copy.path, "bundle")
        logs = os.path.join(self._path, LOGS)
        make_dir(logs)
        told = check_bundle(copy, partial(unpack, copy, logs, self._check), report, self._check)
        problem = refusal(report, told)
        if told is None or problem is not None:
            raise _damaged(copy.path, problem or "it is malformed")
        return told

    def _write(self, name: str, chunks: Iterable[bytes]) -> str:
        """A new file in the workshop -> its SHA-256 digest, in hex."""
        digest = hashlib.sha256()
        with open(create_file(os.path.join(self._path, name)), "wb") as file:
            for chunk in chunks:
                self._check()
                file.write(chunk)
                digest.update(chunk)
        return digest.hexdigest()


def _origin(paths: RunPaths, attempts: int) -> str | None:
    """The id of the directory that ran it, by the headers of its log, the newest attempt's first."""
    for attempt in range(attempts, 0, -1):
        for key in list_segments(paths, attempt):
            try:
                fd, _ = open_regular(paths.segment_file(attempt, key))
            except (FileNotFoundError, NotRegularError):
                continue
            try:
                header, _ = read_header(fd)
            finally:
                os.close(fd)
            if header is not None:
                return header.directory_id
    return None


def _damaged(path: str, problem: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.INVALID_REQUEST,
        f"bundle: {problem.removeprefix('bundle: ')}",
        phase=Phase.READ,
        hint="`durable-supervisor verify FILE` tells all that is wrong; export the run again",
        details={"field": "bundle", "path": path},
    )
