"""What the owner's work on files has met with, as the product's own error."""

from __future__ import annotations

import errno
import os

from ...model.errors import Phase, SupervisorError
from ...process.shortage import is_shortage
from ...runlog.files import FULL_ERRNOS, NotRegularError
from ..admission.host import short_of
from .state_dir import unusable


def typed(
    error: OSError | NotRegularError, folder: str, phase: Phase, full: SupervisorError
) -> SupervisorError:
    """``BUSY`` where we are short of something, ``full`` for a full disk, else ``STATE_DIR_REFUSED``.

    ``folder``: where it was, if the error does not say.
    """
    if isinstance(error, NotRegularError):
        return not_regular(error)
    if is_shortage(error):
        return short_of(error, phase)
    if error.errno in FULL_ERRNOS:
        return full
    return unusable(os.fsdecode(error.filename or folder), error)


def not_regular(error: NotRegularError) -> SupervisorError:
    """``STATE_DIR_REFUSED``."""
    return unusable(str(error), OSError(errno.EINVAL, os.strerror(errno.EINVAL)))
