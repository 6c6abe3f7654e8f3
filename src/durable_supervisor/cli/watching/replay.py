"""``replay``: a run as it was seen on a terminal."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Annotated

from ..opening.session import drive, observing
from ..opening.unknown import is_bundle
from ..options import parse
from ..options.declared import Option
from ..options.shared import After, Call, Json, Raw, RunOrBundle, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out
from ..output.while_read import while_read
from ..terminal.keyboard import Keyboard
from .player import Action, Playback, actions, told
from .recording import Recording
from .screens import Screen, screen

_Speed = Annotated[str, Option("--speed", metavar="X", help="2 is twice as fast, 0.5 half as fast.")]
_From = Annotated[str, Option("--from", metavar="TIME", help="Begin there, such as 90 or 2m.")]
_Quiet = Annotated[bool, Option("--quiet", "-q", help="Only the output, no remarks on stderr.")]


def replay(
    call: Call,
    run: RunOrBundle,
    speed: _Speed = "1",
    begin: _From = "0",
    after: After = "0",
    raw: Raw = False,
    quiet: _Quiet = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Show a run again with its original timing. Nothing is executed.

    At a terminal: space pauses, left and right go 10 s back and forth, up and
    down (or + and -) change the speed, q leaves. RUN may be a bundle.

    \b
    Example:
      dsup replay 4f7k --speed 10 --from 2m
    """
    shared = settings(call, json, state_dir, socket)
    position = parse.positive_seconds("from", begin) or 0.0
    factor, seq = parse.factor("speed", speed), parse.whole("after", after)
    return drive(_replay(shared, run, Playback(position, 0.0, factor), seq, raw=raw, quiet=quiet))


async def _replay(shared: Settings, run: str, start: Playback, after: int, *, raw: bool, quiet: bool) -> int:
    async with observing(shared, run) as observer, while_read():
        pty = False
        if not shared.json and out.is_terminal(out.STDOUT):
            # A stranger's bundle does not get at the terminal unless that is asked for.
            seen = await observer.inspect(run)
            strange = is_bundle(run) or seen.imported is not None
            pty = seen.pty is not None and (raw or not strange)
        shown_on = screen(json=shared.json, pty=pty, raw=raw, quiet=quiet)
        with Keyboard(wanted=not shared.json) as keyboard:
            try:
                await Player(Recording(observer, run, after), shown_on, keyboard, start).play()
            finally:
                await shown_on.leave()
    return exit_codes.OK


class _LeaveError(Exception):
    """Somebody has seen enough."""


class Player:
    """Shows a recording in its own time, and does what the keys say."""

    def __init__(self, recording: Recording, shown_on: Screen, keyboard: Keyboard, start: Playback) -> None:
        self._recording = recording
        self._screen = shown_on
        self._keyboard = keyboard
        self._clock = asyncio.get_running_loop().time
        self._state = replace(start, since=self._clock())
        self._goal = start.position  # what lies before was jumped over

    async def play(self) -> None:
        """Until the end, or until somebody leaves."""
        with suppress(_LeaveError):
            while await self._pass():
                await self._screen.rewind()

    async def _pass(self) -> bool:
        """From where it stands to the end; True when somebody went back from there."""
        async with aclosing(self._recording.play(self._goal)) as moments:
            async for seconds, event in moments:
                if seconds >= self._goal and await self._went_back(seconds):
                    return True
                await self._screen.show(event, missed=seconds < self._goal)
        return await self._went_back_from_the_end()

    async def _went_back(self, seconds: float) -> bool:
        """Wait until it is time for an event, or until somebody goes back."""
        while True:
            left = self._state.until(seconds, self._clock())
            for action in actions(await self._keyboard.typed(left)):
                await self._do(action)
                if action is Action.BACK:
                    return True
            # Against the beginning, not the last event: printing takes time and must not add up.
            if left == 0 or self._state.until(seconds, self._clock()) == 0:
                return False

    async def _went_back_from_the_end(self) -> bool:
        """One who has paused looks at the end as long as he likes."""
        while self._state.paused:
            for action in actions(await self._keyboard.typed(None)):
                await self._do(action)
                if action is Action.BACK:
                    return True
        return False

    async def _do(self, action: Action) -> None:
        if action is Action.LEAVE:
            raise _LeaveError
        self._state = self._state.after(action, self._clock())
        if action in (Action.FORWARD, Action.BACK):
            self._goal = self._state.position
        await self._screen.say(told(self._state, action))
