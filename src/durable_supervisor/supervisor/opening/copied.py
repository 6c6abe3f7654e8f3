"""What a directory that began as a backup says of that, apart from its journal."""

from __future__ import annotations

import json
import os

from ...journal.copying import CopyMark
from ...model.backup import MANIFEST
from ...runlog.files import NotRegularError, open_regular


def mark_beside(path: str) -> CopyMark | None:
    """As the manifest in the directory has it; None without one that can be read."""
    try:
        fd, size = open_regular(os.path.join(path, MANIFEST))
        with open(fd, "rb") as file:
            form = json.loads(file.read(size))
        original = form["original"]
        return CopyMark(str(original["directory_id"]), int(form["made_ns"]), int(original["through"]))
    except (OSError, NotRegularError, KeyError, TypeError, ValueError, RecursionError):
        return None
