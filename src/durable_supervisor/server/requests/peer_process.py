"""Which process is at the other end, and is it still there: for runs that are to end with it."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct

from aiohttp import web

from ...model.identity import ProcessIdentity
from ...process.pidfd import identify

_UCRED = struct.Struct("@iII")  # pid, uid, gid
_SO_PEERPIDFD = 77  # unix(7); since Linux 6.5


def peer_process(request: web.Request) -> ProcessIdentity | None:
    """The process that connected, as the kernel noted it then; nothing that it sends can change it.

    None where it has ended, or cannot be seen from here, such as one in a pid namespace that ours does
    not contain.
    """
    connection = None if request.transport is None else request.transport.get_extra_info("socket")
    if connection is None:
        return None
    try:
        pid, _, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        pidfd = _pidfd(connection, pid)
    except OSError:
        return None
    try:
        return identify(pidfd, pid)
    finally:
        os.close(pidfd)


def hung_up(request: web.Request) -> bool:
    """Has the other end closed its connection?

    The kernel is asked: what it has sent before is read first, so that the loop may not know yet.
    """
    transport = request.transport
    if transport is None or transport.is_closing():
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


def _pidfd(connection: socket.socket, pid: int) -> int:
    """Raises OSError where there is no such process (any more)."""
    try:
        return int(connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
        # An older kernel.  A pid that another has got since the connection was made would be taken for
        # its maker's: by then somebody else, who inherited the connection, has asked on it.
        return os.pidfd_open(pid)
