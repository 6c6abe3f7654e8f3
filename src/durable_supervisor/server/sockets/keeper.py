"""Keeps the socket's name in place: made anew when it was deleted or replaced."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from ...model.errors import SupervisorError
from ...process import inotify
from ...supervisor.loop.logs import logger
from .socket_file import SocketFile

_LOOK_AGAIN_SECONDS = 2.0  # only where the kernel does not tell, or where the place is taken


class Keeper:
    """Watches the directory of a socket; ``on_new(listener)`` gets the socket that was made anew."""

    def __init__(self, file: SocketFile, on_new: Callable[[socket.socket], None]) -> None:
        self._file = file
        self._on_new = on_new
        self._loop = asyncio.get_running_loop()
        self._watch = -1
        self._timer: asyncio.TimerHandle | None = None
        self._told = False  # that it cannot be made anew for now

    def start(self) -> None:
        """Watch, from now on."""
        try:
            self._watch = inotify.watch_directory(self._file.folder)
        except OSError:
            self._later()  # no such directory, no inotify, or no watch left: look now and then
        else:
            self._loop.add_reader(self._watch, self._changed)
        self.check()  # something may have happened before the watch

    def close(self) -> None:
        """Watch no more.  Idempotent."""
        self._forget_watch()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Make the socket anew where it is missing; what stands in its place is somebody else's."""
        if self._file.in_place():
            return
        try:
            listener = self._file.bind()
        except SupervisorError as error:
            if not self._told:
                logger().warning("socket_missing", code=error.code.value)
            self._told = True
            self._later()
            return
        self._told = False
        logger().warning("socket_remade")
        self._on_new(listener)

    def _changed(self) -> None:
        names = inotify.changed_names(self._watch)
        if b"" in names:  # the directory itself: what we watch may not be what the path leads to
            self._forget_watch()
            self._later()
        elif os.fsencode(os.path.basename(self._file.path)) in names:
            self.check()

    def _later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_AGAIN_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        if self._watch < 0:
            self.start()
        else:
            self.check()

    def _forget_watch(self) -> None:
        if self._watch >= 0:
            self._loop.remove_reader(self._watch)
            inotify.close(self._watch)
            self._watch = -1
