"""The lifecycle facts of an attempt, folded from its events.

The writer puts them into the header of every further segment, so that evidence
and paging need the last segment only, however long the log is.
"""

from __future__ import annotations

from durable_supervisor.model.events import TERMINAL_KINDS, Kind

VERDICT_KINDS = frozenset({Kind.RUN_UNKNOWN, Kind.RUN_QUARANTINED, Kind.RUN_NOT_STARTED})
_DETAILS = {
    Kind.RUN_STOPPING: "stopping",
    Kind.PROGRAM_CONFINED: "confined",
    Kind.PROGRAM_EXITED: "exited",
    Kind.PROGRAM_EXEC_FAILED: "exec_failed",
    Kind.RUN_FINISHED: "receipt",
}
_IDENTITIES = {
    Kind.RUN_QUEUED: "worker",
    Kind.RUN_DISPATCHED: "worker",
    Kind.PROGRAM_SPAWNED: "program",
}

_OBJECTS = (*_IDENTITIES.values(), *_DETAILS.values(), "last_verdict")

Detail = dict[str, object]


class Facts:
    """``worker`` and ``program`` are identity dicts; ``terminal`` is ``(kind, detail)``.

    ``confined`` says what the program is held to.  ``last_verdict`` is the newest verdict's detail with
    its ``kind`` added.  ``waiting``: the worker has the run in a queue, and was not told to begin;
    ``withdrawn``: somebody stopped it there.
    """

    __slots__ = (
        "confined", "crash_text", "exec_failed", "exited", "last_verdict", "program", "receipt",
        "released", "stopping", "terminal", "waiting", "withdrawn", "worker",
    )  # fmt: skip

    def __init__(self) -> None:
        self.worker: Detail | None = None
        self.program: Detail | None = None
        self.waiting = False
        self.withdrawn = False
        self.released = False
        self.confined: Detail | None = None
        self.stopping: Detail | None = None
        self.exited: Detail | None = None
        self.exec_failed: Detail | None = None
        self.receipt: Detail | None = None
        self.terminal: tuple[str, Detail] | None = None
        self.crash_text: str | None = None
        self.last_verdict: Detail | None = None

    def note(self, kind: str, detail: Detail) -> None:
        """Take in one event.  What comes later wins, but a receipt stays the first one."""
        if kind in _IDENTITIES:
            identity = detail.get("identity")
            if isinstance(identity, dict):
                setattr(self, _IDENTITIES[kind], identity)
            if kind != Kind.PROGRAM_SPAWNED:
                self.waiting = kind == Kind.RUN_QUEUED
        elif kind == Kind.PROGRAM_RELEASED:
            self.released = True
        elif kind in _DETAILS and not (kind == Kind.RUN_FINISHED and self.receipt is not None):
            setattr(self, _DETAILS[kind], detail)
        elif kind == Kind.CONTROL_RECEIVED:
            self.withdrawn = self.withdrawn or (self.waiting and detail.get("op") == "stop")
        elif kind == Kind.RUN_WORKER_CRASHED:
            text = detail.get("text")
            self.crash_text = text if isinstance(text, str) else None
        if kind in TERMINAL_KINDS:
            self.terminal = (kind, detail)
        if kind in VERDICT_KINDS:
            self.last_verdict = {"kind": kind, **detail}

    def to_dict(self) -> Detail:
        """JSON form, without what is not known yet."""
        form = {name: getattr(self, name) for name in Facts.__slots__}
        return {name: value for name, value in form.items() if value not in (None, False)}

    @classmethod
    def from_dict(cls, form: object) -> Facts:
        """The reverse of `to_dict`; a mistyped part is left out."""
        facts = cls()
        if not isinstance(form, dict):
            return facts
        for name in _OBJECTS:
            value = form.get(name)
            setattr(facts, name, value if isinstance(value, dict) else None)
        for name in ("waiting", "withdrawn", "released"):
            setattr(facts, name, form.get(name) is True)
        crash = form.get("crash_text")
        facts.crash_text = crash if isinstance(crash, str) else None
        terminal = form.get("terminal")
        if isinstance(terminal, list) and len(terminal) == 2 and isinstance(terminal[1], dict):
            facts.terminal = (str(terminal[0]), terminal[1])
        return facts
