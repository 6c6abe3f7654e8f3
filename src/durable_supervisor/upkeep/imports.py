"""Copy imported runs, while they may be collected."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

from ..model.errors import SupervisorError
from ..process.shortage import is_shortage
from ..runlog.files import NotRegularError, create_file, make_dir, open_regular
from ..runlog.tree import files_below
from ..supervisor.imports.files import load
from ..supervisor.imports.imported import Home, homes

_CHUNK = 1 << 20


def copy_imports(source: str, dest: str, left_out: dict[str, str], check: Callable[[], None]) -> int:
    """Every imported run that can be read, byte by byte -> how many.  Nothing is synced yet.

    Those that cannot are named in ``left_out``, unless they were collected meanwhile.  Raises OSError where
    a copy cannot be written, and what ``check`` raises.
    """
    copied = 0
    for home in reversed(homes(source)):
        copy = os.path.join(dest, os.path.basename(home.path))
        try:
            load(home)
            _copy(home, dest, copy, check)
            problem = ""
        except _UnreadableError as error:
            problem = str(error)
        except SupervisorError as error:
            problem = error.message
        # Collected meanwhile?  Its name goes first: as long as that is there, all is.
        there = os.path.lexists(home.path)
        if there and problem:
            left_out[home.run_id] = problem
        if there and not problem:
            copied += 1
        else:
            shutil.rmtree(copy, ignore_errors=True)
    return copied


class _UnreadableError(Exception):
    """The original does not give it."""


def _copy(home: Home, dest: str, copy: str, check: Callable[[], None]) -> None:
    make_dir(dest)
    make_dir(copy)
    for name in files_below(home.path):
        folder = copy
        for part in os.path.dirname(name).split(os.sep):
            folder = os.path.join(folder, part)
            make_dir(folder)
        with open(create_file(os.path.join(copy, name)), "wb") as file:
            file.writelines(_chunks(home.file(name), check))


def _chunks(path: str, check: Callable[[], None]) -> Iterator[bytes]:
    try:
        fd, _ = open_regular(path)
        try:
            at = 0
            while data := os.pread(fd, _CHUNK, at):
                check()
                yield data
                at += len(data)
        finally:
            os.close(fd)
    except NotRegularError as problem:
        raise _UnreadableError(str(problem)) from problem
    except OSError as problem:
        if is_shortage(problem):
            raise
        raise _UnreadableError(os.strerror(problem.errno or 0)) from problem
