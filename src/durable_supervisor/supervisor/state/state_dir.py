"""The state directory: where it is, whether it can be trusted, and who owns it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable
from functools import partial

from ...model.errors import ErrorCode, Phase, SupervisorError
from ...model.identity import ProcessIdentity
from ...model.named_tuple import NamedTuple
from ...process import forks
from ...process.identity import Liveness, probe, self_identity
from ...process.places import state_directory
from ...process.shortage import is_shortage
from ...runlog.files import fsync_dir
from .file_systems import NETWORK_FILE_SYSTEMS, file_system

MIN_FREE_BYTES = 16 * 1024 * 1024
KEY_BYTES = 32
IMPORTED = "imported"  # a folder
_POLL_SECONDS = 0.02

# Never follows a link, never waits for the other end of a FIFO.
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class StateDir(NamedTuple):
    """The names inside one state directory.  ``path`` is absolute."""

    path: str

    @property
    def journal(self) -> str:
        return f"{self.path}/journal.db"

    @property
    def runs(self) -> str:
        return f"{self.path}/runs"

    @property
    def imported(self) -> str:
        """Runs of other directories; made by the first import."""
        return f"{self.path}/{IMPORTED}"

    @property
    def lock(self) -> str:
        return f"{self.path}/supervisor.lock"

    @property
    def owner(self) -> str:
        return f"{self.path}/supervisor.owner"

    @property
    def key(self) -> str:
        return f"{self.path}/key"


def locate(state_dir: str | os.PathLike[str] | None) -> StateDir:
    """The argument, else ``$DURABLE_SUPERVISOR_STATE_DIR``, else the user's state directory."""
    return StateDir(state_directory(state_dir))


def create(place: StateDir) -> None:
    """Make the directory (0700, whatever the umask) and its ``runs``, where they are missing."""
    for path in (place.path, place.runs):
        try:
            _make_private(path)
        except NotADirectoryError:
            raise _refused(_shown(path), "is not a directory", "choose another state directory") from None
        except OSError as error:
            raise unusable(path, error) from error


def _make_private(path: str) -> None:
    """A directory and what is missing on the way to it: in a parent open to others it could be exchanged."""
    missing = [path]  # a loop, since a path has room for more directories than the interpreter has for calls
    while missing:
        try:
            os.mkdir(missing[-1], 0o700)
        except FileNotFoundError:
            missing.append(os.path.dirname(missing[-1]))
            continue
        except FileExistsError:
            if not os.path.isdir(missing[-1]):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        else:
            os.chmod(missing[-1], 0o700)  # a umask may have taken bits from the owner
        missing.pop()


def check(place: StateDir) -> bool:
    """Is it there and fit to be trusted?  False: it does not exist.

    Raises SupervisorError ``STATE_DIR_REFUSED``: not ours, open to others, on a network
    file system, not a directory.
    """
    shown = _shown(place.path)
    kind = file_system(place.path)
    if kind in NETWORK_FILE_SYSTEMS:
        raise _refused(
            shown,
            f"is on a network file system ({kind}), where locks and fsync cannot be relied on",
            "choose a directory on a local disk with --state-dir",
        )
    try:
        status = os.stat(place.path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise unusable(place.path, error) from error
    if not stat.S_ISDIR(status.st_mode):
        raise _refused(shown, "is not a directory", "choose another state directory")
    if status.st_uid != os.geteuid():
        raise _refused(
            shown,
            f"belongs to user id {status.st_uid}, not to you ({os.geteuid()})",
            "choose a directory of your own with --state-dir, or run as its owner",
        )
    if status.st_mode & 0o077:
        import shlex

        raise _refused(
            shown,
            f"is open to others (mode {stat.S_IMODE(status.st_mode):04o})",
            f"if it is meant for this alone: chmod 700 {shlex.quote(shown)}; else choose another --state-dir",
        )
    return True


def check_space(place: StateDir) -> None:
    """Raises ``NO_SPACE`` when a run could not even record its own end."""
    figures = os.statvfs(place.path)
    free = figures.f_bavail * figures.f_frsize
    if free < MIN_FREE_BYTES:
        raise no_space(free)


def no_space(free: int) -> SupervisorError:
    return SupervisorError(
        ErrorCode.NO_SPACE,
        f"too little space in the state directory to start a run safely ({free // 1024} KiB free)",
        phase=Phase.ADMIT,
        retryable=True,
        hint=f"free at least {MIN_FREE_BYTES // (1024 * 1024)} MiB and try again",
    )


def load_key(place: StateDir, *, create: bool) -> bytes:
    """The directory's secret key for digests; made once, 0600 from the moment it exists.

    Raises ``STATE_DIR_REFUSED`` when it is missing (and not ``create``) or damaged.
    """
    try:
        fd = os.open(place.key, _READ_FLAGS)
    except FileNotFoundError:
        if not create:
            raise _refused(
                _shown(place.key),
                "is missing",
                "restore it, or run `durable-supervisor recover`",
            ) from None
        return _make_key(place)
    except OSError as error:
        raise unusable(place.key, error) from error
    try:
        key = os.read(fd, KEY_BYTES + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
    if len(key) != KEY_BYTES:
        raise _refused(
            _shown(place.key),
            "is damaged",
            "restore it from a backup; without one, move it away and run `durable-supervisor recover`",
        )
    return key


def _make_key(place: StateDir) -> bytes:
    key = os.urandom(KEY_BYTES)
    try:
        _replace(place.key, key, durable=True)
        fsync_dir(place.path)  # the digests that it made must never outlive it
    except OSError as error:
        raise unusable(place.key, error) from error
    return key


def _replace(path: str, content: bytes, *, durable: bool) -> None:
    """Put a new 0600 file at ``path``, whole or not at all, whatever stood there.  Raises OSError.

    Only the owner does: so the half-made file has one name, and whoever was killed over it leaves one
    that the next owner clears away.
    """
    temporary = f"{path}.new"
    try:
        os.unlink(temporary)
    except FileNotFoundError:
        pass
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(fd, 0o600)
        with open(fd, "wb", closefd=False) as file:  # unlike write(2), it goes on where the disk took a part
            file.write(content)
        if durable:
            os.fsync(fd)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)


class Ownership:
    """The directory's lock, held.  Two locks, so that deleting the lock file gives nobody else a way in.

    By flock(2), as the filelock package does it, which owners of older releases use: they see us, and we
    see them.  Not by that package: to load it takes longer than a bare interpreter does in all.
    """

    def __init__(self, place: StateDir) -> None:
        self._place = place
        self._held: list[int] = []

    @classmethod
    async def take(cls, place: StateDir, wait: float) -> Ownership:
        """Own the directory, waiting up to ``wait`` seconds for short-lived owners.

        Raises ``STATE_DIR_IN_USE`` with the owner's pid in ``details``.
        """
        deadline = time.monotonic() + wait
        while (ownership := cls.try_take(place)) is None:
            if time.monotonic() >= deadline:
                raise in_use(place)
            import asyncio  # who waits for nobody may do without

            await asyncio.sleep(_POLL_SECONDS)
        return ownership

    @classmethod
    def try_take(cls, place: StateDir, lock: int | None = None) -> Ownership | None:
        """None: it has an owner.  ``lock``: of `open_lock`, perhaps held by now; closed if it is for nothing.

        Raises ``STATE_DIR_REFUSED``, ``NO_SPACE``, ``BUSY``.
        """
        ownership = cls(place)
        if not ownership._try(lock):
            return None
        ownership._sign()
        return ownership

    def release(self) -> None:
        """Idempotent."""
        if self._held:
            try:
                os.unlink(self._place.owner)
            except OSError:
                pass
            self._let_go()

    def _try(self, lock: int | None) -> bool:
        """Both locks, or none."""
        try:
            if self._lock(lambda: _open_lock(self._place) if lock is None else lock) and self._lock(
                lambda: forks.opened(partial(os.open, self._place.path, _DIRECTORY_FLAGS))
            ):
                os.fchmod(self._held[0], 0o600)  # a umask may have taken bits from the owner
                return True
        except OSError as error:
            self._let_go()
            raise unusable(error.filename or self._place.path, error) from error
        self._let_go()
        return False

    def _lock(self, opened: Callable[[], int]) -> bool:
        """False: another holds it.  Raises OSError."""
        try:
            self._held.append(opened())
            fcntl.flock(self._held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _let_go(self) -> None:
        """The directory first: it was taken last."""
        while self._held:
            forks.close(self._held.pop())

    def _sign(self) -> None:
        """Leave our identity for whoever is refused; a hint for people, never evidence."""
        try:
            _replace(self._place.owner, json.dumps(self_identity().to_dict()).encode(), durable=False)
        except OSError:
            pass


def open_lock(place: StateDir) -> int:
    """The lock file, open to be locked.  Raises as `Ownership.try_take`."""
    try:
        return _open_lock(place)
    except OSError as error:
        raise unusable(place.lock, error) from error


def _open_lock(place: StateDir) -> int:
    return forks.opened(lambda: os.open(place.lock, _LOCK_FLAGS, 0o600))


def read_owner(place: StateDir) -> bytes:
    """The name that the owner left, as it is in the file; nothing where there is none."""
    try:
        fd = os.open(place.owner, _READ_FLAGS)
    except OSError:
        return b""
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""
    finally:
        os.close(fd)


def owner_pid(place: StateDir) -> int | None:
    """The pid of the living owner, if it left its name."""
    try:
        identity = ProcessIdentity.from_dict(json.loads(read_owner(place)))
    except (ValueError, AttributeError):  # not JSON, or not an object
        return None
    return identity.pid if probe(identity) is not Liveness.GONE else None


def is_owned(place: StateDir) -> bool:
    """Does a supervisor own the directory at this moment?  Takes no lock for longer than the question."""
    try:
        directory = os.open(place.path, _DIRECTORY_FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(directory, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(directory)
    return False


def in_use(place: StateDir) -> SupervisorError:
    pid = owner_pid(place)
    who = f"process {pid}" if pid is not None else "another process"
    return SupervisorError(
        ErrorCode.STATE_DIR_IN_USE,
        f"{_shown(place.path)} is in use by {who}",
        phase=Phase.OPEN,
        retryable=True,
        hint="ask that application to start the run, end it, or choose another --state-dir",
        details={"pid": pid},
    )


def _refused(what: str, problem: str, hint: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.STATE_DIR_REFUSED, f"{what} {problem}", phase=Phase.OPEN, hint=hint, details={"path": what}
    )


def unusable(path: str, error: OSError) -> SupervisorError:
    """``STATE_DIR_REFUSED``; ``NO_SPACE`` or ``BUSY`` where that is all."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_space(0)
    if is_shortage(error):
        from ..admission.host import (
            short_of,  # with much that those who only look for the directory do without
        )

        return short_of(error, Phase.OPEN)
    return _refused(
        _shown(path),
        f"cannot be used: {os.strerror(error.errno or errno.EIO)}",
        "choose a directory that you can write to with --state-dir",
    )


def _shown(path: str) -> str:
    """A path that fits one line and any encoding."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8").replace("\n", "\\n")
