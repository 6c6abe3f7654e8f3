"""The second mechanism for files: a root of its own, with nothing in it but what may be used (bwrap(1)).

bubblewrap makes its own namespaces, gives up capabilities and takes the system call filter itself, so
none of that is done before it is executed.  Grants reach it as descriptors, so that what is
mounted is what was looked at; their numbers are agreed before the fork, and the child puts them there.
"""

from __future__ import annotations

import os

from .paths import ALL, DEVICES, EXECUTABLE, READABLE, WRITE, Open
from .plan import Files, Plan
from .trial import succeeds

_PLACES = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")
_PROGRAM_FD, _FILTER_FD = 298, 299
_FIRST_GRANT_FD = 300  # above whatever the child has open by then


def wrap(path: str, argv: list[str], plan: Plan, cwd: str) -> tuple[str, list[str]]:
    """What to execute instead of the program.  It has ``path`` as its own ``argv[0]`` then."""
    files = plan.files
    if files is None or files.bwrap is None:
        raise ValueError("the plan has no bubblewrap")
    options = ["--cap-drop", "ALL"]
    if os.geteuid() != 0:
        options.append("--unshare-user")
    if plan.network is not None and plan.network["mechanism"] == "namespace":
        options.append("--unshare-net")
    if plan.seccomp:
        options += ["--seccomp", str(_FILTER_FD)]
    mounts = [*_base(), *_granted(files), *_program(path, files), "--remount-ro", "/"]
    return files.bwrap, [
        files.bwrap, *options, *mounts, "--chdir", os.path.realpath(cwd), "--", path, *argv[1:]
    ]  # fmt: skip


def _base() -> list[str]:
    mounts = []
    for path in (*EXECUTABLE, *READABLE):
        mounts += ["--ro-bind-try", path, path]
    for path in DEVICES:
        mounts += ["--dev-bind-try", path, path]
    return mounts


def _granted(files: Files) -> list[str]:
    """Each at its real place, the outer ones first, and a link where its path leads there by one."""
    mounts = []
    links = []
    numbered = enumerate(files.grants, _FIRST_GRANT_FD)
    places = sorted((os.path.realpath(path), path, access, fd) for fd, (path, access, _, _) in numbered)
    for place, path, access, fd in places:
        mounts += ["--bind-fd" if access in (WRITE, ALL) else "--ro-bind-fd", str(fd), place]
        if path != place and not _within(path, [*EXECUTABLE, *(other[0] for other in places)]):
            links += ["--symlink", place, path]
    return [*mounts, *links]


def _program(path: str, files: Files) -> list[str]:
    """Itself, where nothing else shows it."""
    return [] if _is_shown(path, files) else ["--ro-bind-fd", str(_PROGRAM_FD), path]


def _is_shown(path: str, files: Files) -> bool:
    return _within(path, [*EXECUTABLE, *(os.path.realpath(grant[0]) for grant in files.grants)])


def hand_over(files: Files, grants: list[Open], program: Open, rules: bytes) -> None:
    """Put the descriptors where `wrap` said that they are.  In the paused child.  Raises OSError.

    bwrap closes what it has used; nothing else must be left open, or the program would have it.
    """
    for number, grant in enumerate(grants, _FIRST_GRANT_FD):
        os.dup2(grant.fd, number, inheritable=True)
    if not _is_shown(program.path, files):
        os.dup2(program.fd, _PROGRAM_FD, inheritable=True)
    if rules:
        memory = os.memfd_create("filter")
        os.write(memory, rules)
        os.lseek(memory, 0, os.SEEK_SET)
        os.dup2(memory, _FILTER_FD, inheritable=True)


def probe() -> str | None:
    """The path of one that works here for this user, and takes descriptors of what it should mount."""
    found = next((place for place in _PLACES if os.access(place, os.X_OK)), None)
    return found if found is not None and succeeds(lambda: _becomes(found)) else None


def _becomes(bwrap: str) -> bool:
    """Executes it, silently: its exit status is the answer."""
    root = os.open("/", os.O_PATH)  # inherited below
    os.set_inheritable(root, True)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd, inheritable=True)
    user = [] if os.geteuid() == 0 else ["--unshare-user"]
    mounts = ["--ro-bind-fd", str(root), "/", "--dev-bind", "/dev/null", "/dev/null"]
    os.execv(bwrap, [bwrap, *user, "--cap-drop", "ALL", "--unshare-net", *mounts, "--", "true"])


def _within(path: str, places: list[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)
