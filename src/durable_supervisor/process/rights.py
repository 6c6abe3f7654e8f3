"""Descriptors over a Unix socket (``SCM_RIGHTS``, unix(7))."""

from __future__ import annotations

import array
import socket


def send_fds(end: socket.socket, message: bytes, descriptors: list[int]) -> int:
    """Copies of ``descriptors`` to whoever has the other end, with a message that is not empty.

    Answers how much of the message was sent: by a stream perhaps not all, but they come with its first byte.
    Unlike `socket.send_fds`, never a SIGPIPE: a host may have let that end it again.  Raises OSError.
    """
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    return end.sendmsg([message], [rights], socket.MSG_NOSIGNAL)
