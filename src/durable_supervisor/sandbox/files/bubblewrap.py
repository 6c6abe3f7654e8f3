"""The second mechanism for files: a root of its own, with nothing in it but what may be used (bwrap(1)).

bubblewrap makes its own namespaces, gives up capabilities and takes the system call filter itself, so
none of that is done before it is executed.  Grants reach it as descriptors, so that what is
mounted is what was looked at; their numbers are agreed before the fork, and the child puts them there.

bwrap itself is nowhere confined, and what the program can write may be where its environment looks for
libraries: bwrap has an empty one, and is told the program's.  It stays as the program's parent, so a user
namespace keeps them apart, for root too: through a parent of the same user, /proc shows the whole machine.
"""

from __future__ import annotations

import os

from ..plan import Files, Plan
from ..report import NAMESPACE
from ..trial import succeeds
from .paths import ALL, DEVICES, EXECUTABLE, READABLE, WRITE, Open

_PLACES = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")
# Always: nothing of the user's privileges, parent or queues (ipc_namespaces(7)) is the program's.
_APART = ("--unshare-user", "--unshare-ipc", "--cap-drop", "ALL")
_ENVIRONMENT_FD, _PROGRAM_FD, _FILTER_FD = 297, 298, 299
_FIRST_GRANT_FD = 300  # above whatever the child has open by then


def wrap(path: str, argv: list[str], plan: Plan, cwd: str) -> tuple[str, list[str]]:
    """What to execute instead of the program, without any environment.

    The program has ``path`` as its own ``argv[0]`` then, and the environment that is handed over.
    """
    files = plan.files
    if files is None or files.bwrap is None:
        raise ValueError("the plan has no bubblewrap")
    options = [*_APART, "--args", str(_ENVIRONMENT_FD)]
    if plan.network is not None and plan.network["mechanism"] == NAMESPACE:
        options.append("--unshare-net")
    if plan.seccomp:
        options += ["--seccomp", str(_FILTER_FD)]
    return files.bwrap, [
        files.bwrap, *options, *_mounts(files), *_program(path, files), *_root(files),
        "--chdir", os.path.realpath(cwd), "--", path, *argv[1:],
    ]  # fmt: skip


def _mounts(files: Files) -> list[str]:
    """The base and the grants, each at its real place, what lies beneath another after it.

    Where a grant's path leads there by a link, the link is made too, unless something shows it already.
    """
    granted = _places(files)
    base = [path for path in (*EXECUTABLE, *READABLE) if not _within(path, granted)]
    mounts = [(path, ["--ro-bind-try", path, path]) for path in base]
    mounts += [(path, ["--dev-bind-try", path, path]) for path in DEVICES]  # other mounts hold no devices
    if files.hidden is not None:
        mounts.append((files.hidden, ["--tmpfs", files.hidden, "--remount-ro", files.hidden]))
    links = []
    for number, (place, (path, access, _, _)) in enumerate(
        zip(granted, files.grants, strict=True), _FIRST_GRANT_FD
    ):
        mounts.append(
            (place, ["--bind-fd" if access in (WRITE, ALL) else "--ro-bind-fd", str(number), place])
        )
        if path != place and not _is_shown(path, files):
            links += ["--symlink", place, path]
    mounts.sort(key=lambda mount: mount[0])
    return [*(word for _, words in mounts for word in words), *links]


def _places(files: Files) -> list[str]:
    """Of each grant, in their order."""
    return [os.path.realpath(path) for path, *_ in files.grants]


def _root(files: Files) -> list[str]:
    """Nothing can be made beside what is mounted; a root that was granted stays as it is."""
    return [] if "/" in _places(files) else ["--remount-ro", "/"]


def _program(path: str, files: Files) -> list[str]:
    """Itself, where nothing else shows it."""
    return [] if _is_shown(path, files) else ["--ro-bind-fd", str(_PROGRAM_FD), path]


def _is_shown(path: str, files: Files) -> bool:
    return _within(path, [*EXECUTABLE, *_places(files)])


def hand_over(
    files: Files, grants: list[Open], program: Open, rules: bytes, environment: dict[str, str]
) -> None:
    """Put the descriptors where `wrap` said that they are.  In the paused child.  Raises OSError.

    bwrap closes what it has used; nothing else must be left open, or the program would have it.
    """
    for number, grant in enumerate(grants, _FIRST_GRANT_FD):
        os.dup2(grant.fd, number, inheritable=True)
    if not _is_shown(program.path, files):
        os.dup2(program.fd, _PROGRAM_FD, inheritable=True)
    words = [word for name, value in environment.items() for word in ("--setenv", name, value)]
    _put(_ENVIRONMENT_FD, b"".join(os.fsencode(word) + b"\0" for word in words))
    if rules:
        _put(_FILTER_FD, rules)


def _put(number: int, content: bytes) -> None:
    """A file that nobody else sees: environments have secrets, and everybody sees arguments."""
    memory = os.memfd_create("bwrap")
    with open(memory, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(memory, 0, os.SEEK_SET)
    os.dup2(memory, number, inheritable=True)


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
    mounts = ["--ro-bind-fd", str(root), "/", "--dev-bind", "/dev/null", "/dev/null"]
    os.execve(bwrap, [bwrap, *_APART, "--unshare-net", *mounts, "--", "/usr/bin/true"], {})


def _within(path: str, places: list[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)
