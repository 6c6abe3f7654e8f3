"""Events and state changes as lines of a timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from durable_supervisor.model.events import Kind

from ..output import describe, out
from ..output.escape import StreamEscaper, escape_text
from ..output.style import Style

if TYPE_CHECKING:
    from durable_supervisor.model.events import Event

_COLOURS = {"run": "cyan", "program": "green", "control": "magenta", "output": "yellow"}


class Timeline:
    """``seq  +elapsed  kind  text``, output escaped and split at its newlines."""

    def __init__(self) -> None:
        self._style = Style(out.STDOUT)

    def lines(self, event: Event) -> str:
        """The event's lines, with their newlines."""
        head = f"{event.seq:>7} {f'+{event.elapsed_ns / 1e9:.3f}s':>12}"
        if event.kind != Kind.OUTPUT:
            kind = self._style.paint(_COLOURS.get(event.kind.partition(".")[0], ""), f"{event.kind:<20}")
            return f"{head}  {kind} {describe.event_text(event.kind, event.detail)}".rstrip() + "\n"
        escaper = StreamEscaper()  # one for each event: a line of the timeline stands alone
        text = escaper.feed(event.data) + escaper.finish()
        stream = event.stream or "output"
        colour = "red" if stream == "stderr" else ""
        rows = text.removesuffix("\n").split("\n")
        margin = " " * len(head)
        return "".join(
            f"{margin if index else head}  {'' if index else stream:<8} {self._style.paint(colour, row)}\n"
            for index, row in enumerate(rows)
        )


def feed_line(form: describe.Form) -> str:
    """One state change of one run."""
    reason = f" ({form['reason']})" if form.get("reason") not in (None, "", "logged") else ""
    return escape_text(
        f"{form.get('position'):>7}  {describe.local_time(form.get('time'))}"
        f"  {form.get('run_id')}  {form.get('state')}{reason}"
    )
