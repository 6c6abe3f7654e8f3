"""The pointer file, by which clients find a socket elsewhere from the state directory alone."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from ...process.places import POINTER_NAME


def write_pointer(state_dir: str, socket_path: str) -> None:
    """Say where the service of ``state_dir`` listens.  Raises OSError."""
    path = os.path.join(state_dir, POINTER_NAME)
    temporary = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="ascii") as file:
        file.write(json.dumps({"socket": socket_path}) + "\n")
    os.rename(temporary, path)


def remove_pointer(state_dir: str) -> None:
    """Clients look in the state directory itself again."""
    with suppress(OSError):
        os.unlink(os.path.join(state_dir, POINTER_NAME))
