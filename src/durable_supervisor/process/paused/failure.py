"""What a paused child says when it could not go on: the errno, and the step that failed."""

from __future__ import annotations

import struct

FAILURE = struct.Struct("<iB")
STEPS = ("cwd", "exec", "prepare", "confine")
CWD, EXEC, PREPARE, CONFINE = range(len(STEPS))
NEVER_RELEASED = 127  # its exit status
