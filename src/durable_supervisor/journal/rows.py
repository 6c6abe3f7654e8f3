"""What the journal says about a run, as plain frozen values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from ..model.compact import compact_encoder
from ..model.errors import Phase
from ..model.named_tuple import NamedTuple
from ..model.outcome import Outcome
from ..model.states import RunState
from .errors import corrupt

Document = dict[str, Any]  # a JSON object

encode = compact_encoder(allow_nan=False)  # as every JSON column has it


def encode_optional(value: object | None) -> str | None:
    """`encode`, with None as SQL NULL."""
    return None if value is None else encode(value)


# What `encode` wrote needs none of the checks that json.loads makes first: a list of
# thousands of rows is decoded in half the time.
_scan = json.JSONDecoder().raw_decode


def decode(text: str) -> Any:
    """What `encode` was given.

    Raises SupervisorError ``JOURNAL_CORRUPT``: SQLite does not find a byte that was changed in a text.
    """
    try:
        value, end = _scan(text)
    except (TypeError, ValueError) as error:
        raise corrupt(f"a row of the journal is damaged: {error}", Phase.READ) from error
    if end != len(text):
        raise corrupt(f"a row of the journal is damaged: more follows at char {end}", Phase.READ)
    return value


class RunRow(NamedTuple):
    """One row of ``runs``.  Times are Unix nanoseconds.

    From ``updated_ns`` on the fields are facts of the current attempt; when that began and ended
    `runs.attempts` tells.  ``argv``
    is as stored: redacted; of a collected run it is empty, as are its working directory, labels
    and all that a log would tell.  ``outcome`` is ``Outcome.to_dict()``; ``receipt``,
    ``evidence``, ``resolution`` and ``log_health`` are JSON objects.
    """

    serial: int
    run_id: str
    shard: str
    owner: str
    request_id: str
    state: RunState
    attempt: int
    argv: list[str]
    cwd: str
    env_names: list[str]
    labels: dict[str, str]
    limits: Document
    completion: str
    digests: dict[str, str]
    key_id: str
    nested_in: str | None
    survives_unit_restart: bool | None
    created_ns: int
    updated_ns: int
    boot_id: str
    worker: Document | None
    program: Document | None
    reason: str | None
    outcome: Document | None
    receipt: Document | None
    evidence: Document | None
    retryable: bool
    stop_requested: bool
    resolution: Document | None
    log_health: Document | None
    priority: int = 0
    collected_ns: int | None = None

    @property
    def may_retry(self) -> bool:
        """May the same request make a new attempt?  Not once its owner has stopped it."""
        return self.state is RunState.NOT_STARTED and self.retryable and not self.stop_requested

    @property
    def how_it_ended(self) -> Outcome | None:
        """Its outcome.  Raises as `decode`."""
        try:
            return None if self.outcome is None else Outcome.from_dict(self.outcome)
        except (KeyError, TypeError, ValueError) as error:
            problem = f"the outcome of run {self.run_id} is damaged: {error}"
            raise corrupt(problem, Phase.READ) from error

    @property
    def imported(self) -> bool:
        """Does it only stand for a row, of a run that is another directory's?"""
        return False

    @property
    def collected(self) -> bool:
        """Is this a tombstone?  Then its log is gone, or going."""
        return self.collected_ns is not None


_JSON_COLUMNS = frozenset({
    "argv", "cwd", "env_names", "labels", "limits", "digests", "worker", "program", "outcome", "receipt",
    "evidence", "resolution", "log_health",
})  # fmt: skip
_FIELDS = RunRow._fields


def run_row(row: sqlite3.Row) -> RunRow:
    """A `RunRow` from ``SELECT * FROM runs``; columns of a later schema are ignored.

    Raises as `decode`.
    """
    columns = dict(zip(row.keys(), row, strict=True))  # by name, but without a search for each
    values = {name: columns[name] for name in _FIELDS if name in columns}  # an older schema has fewer
    for name in _JSON_COLUMNS:
        text = values.get(name)
        if text is not None:
            values[name] = decode(text)
    values["state"] = _state(values["state"])
    values["retryable"] = bool(values["retryable"])
    values["stop_requested"] = bool(values["stop_requested"])
    survives = values["survives_unit_restart"]
    values["survives_unit_restart"] = None if survives is None else bool(survives)
    try:
        return RunRow(**values)
    except TypeError as error:
        raise corrupt(f"the journal's table of runs is damaged: {error}", Phase.READ) from error


def _state(word: str) -> RunState:
    try:
        return RunState(word)
    except ValueError as error:
        raise corrupt(f"a row of the journal is damaged: {error}", Phase.READ) from error


class Intent(NamedTuple):
    """What `runs.admit` commits before anything is dispatched.

    ``attempt`` is 1 for a new run, the row's attempt + 1 for a retry (whose
    ``run_id``, ``serial`` and ``shard`` are then the row's); ``first_seq`` is the first seq of
    its log.  ``state`` is ``STARTING``, or ``QUEUED`` while there is no slot; among the
    queued a greater ``priority`` goes first.
    """

    serial: int
    run_id: str
    shard: str
    owner: str
    request_id: str
    argv: Sequence[str]
    cwd: str
    limits: Mapping[str, object]
    completion: str
    digests: Mapping[str, str]
    key_id: str
    boot_id: str
    now_ns: int
    labels: Mapping[str, str] = MappingProxyType({})
    env_names: Sequence[str] = ()
    nested_in: str | None = None
    survives_unit_restart: bool | None = None
    attempt: int = 1
    first_seq: int = 1
    state: RunState = RunState.STARTING
    priority: int = 0


def new_row(intent: Intent, now_ns: int) -> RunRow:
    """The row that this intent becomes: what a read of it would answer, without one."""
    return RunRow(
        serial=intent.serial, run_id=intent.run_id, shard=intent.shard, owner=intent.owner,
        request_id=intent.request_id, state=intent.state, attempt=intent.attempt, argv=list(intent.argv),
        cwd=intent.cwd, env_names=list(intent.env_names), labels=dict(intent.labels),
        limits=dict(intent.limits), completion=intent.completion, digests=dict(intent.digests),
        key_id=intent.key_id, nested_in=intent.nested_in,
        survives_unit_restart=intent.survives_unit_restart, created_ns=intent.now_ns, updated_ns=now_ns,
        boot_id=intent.boot_id, worker=None, program=None, reason=None, outcome=None, receipt=None,
        evidence=None, retryable=False, stop_requested=False, resolution=None, log_health=None,
        priority=intent.priority,
    )  # fmt: skip


AdmissionKind = Literal["new", "existing", "retry", "retryable", "conflict"]


class Admission:
    """What became of a request.

    ``new`` and ``retry``: the intent is in the journal, dispatch it.  ``existing``: the same
    request, answer with ``row``.  ``retryable``: nothing written; prepare attempt
    ``row.attempt + 1`` of ``row.run_id`` and admit that.  ``conflict``: nothing written;
    ``differing`` names the fields (``["key_id"]``: digests of another key, incomparable).
    """

    __slots__ = ("_row", "differing", "kind")

    def __init__(self, kind: AdmissionKind, row: RunRow | Intent, differing: Sequence[str] = ()) -> None:
        self.kind = kind
        self._row = row
        self.differing = differing

    @property
    def row(self) -> RunRow:
        """A new run's is made when it is first asked for: behind the commit, which a caller waits for."""
        if isinstance(self._row, Intent):
            self._row = new_row(self._row, self._row.now_ns)
        return self._row


class AttemptRow(NamedTuple):
    """One try at executing a run; ``reason`` and the ``ended_*`` fields are None while it is open."""

    attempt: int
    intent_ns: int
    boot_id: str
    first_seq: int
    ended_ns: int | None
    ended_state: str | None
    reason: str | None
