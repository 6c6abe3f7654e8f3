"""Find the runs that a directory's logs tell of, for a journal that lost them."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator

from ...journal.memory import rebuilt_in_memory
from ...journal.reader import JournalReader
from ...journal.recover import RecoveredAttempt, RecoveredRun
from ...model.events import Kind
from ...model.ids import RUN_ID_LENGTH
from ...model.outcome import Outcome
from ...model.states import RunState
from ...runlog.collected import CollectedLog
from ...runlog.evidence import LogEvidence
from ...runlog.format import SegmentHeader
from ...runlog.paths import RunPaths, list_attempts, list_runs, list_shards
from ...runlog.reader import LogReader
from ...runlog.tail import FOREIGN
from ..gc.collected import read as read_tombstones

_WORDS = {
    Kind.RUN_NOT_STARTED: RunState.NOT_STARTED,
    Kind.RUN_UNKNOWN: RunState.UNKNOWN,
}
_Word = tuple[RunState, dict[str, object]]
_NO_WORD: _Word = (RunState.STARTING, {})


def in_memory(runs_dir: str) -> JournalReader:
    """A reader over everything that the logs tell; costs time with every run there is."""
    stones = [stone for _, stone in read_tombstones(CollectedLog(runs_dir)) if stone is not None]
    return rebuilt_in_memory(scan(runs_dir, sure=True), stones, time.time_ns())


def scan(runs_dir: str, *, with_unaccepted: bool = False, sure: bool = False) -> Iterator[RecoveredRun]:
    """Every run whose first log's header can be read.

    A log without records may never have been accepted (its intent was perhaps not
    committed); it is left out unless asked for: then its id stays spent, the safe side.
    ``sure``: a run whose last word may not be on the disk yet is not called settled, for rows
    that are told and never written.
    """
    for shard in list_shards(runs_dir):
        for run_id, numbers in list_attempts(runs_dir, shard).items():
            found = _run(RunPaths(runs_dir, shard, run_id), shard, numbers, with_unaccepted, sure)
            if found is not None:
                yield found


def without_header(runs_dir: str, told: Container[str]) -> Iterator[str]:
    """Runs not ``told`` of whose logs hold records, but no longer say whose they are."""
    for shard in list_shards(runs_dir):
        for run_id, newest in list_runs(runs_dir, shard).items():
            if run_id in told or len(run_id) != RUN_ID_LENGTH:
                continue
            evidence = LogReader(RunPaths(runs_dir, shard, run_id), newest).evidence()
            if evidence.header is None and evidence.has_records:
                yield run_id


def _run(
    paths: RunPaths, shard: str, numbers: list[int], with_unaccepted: bool, sure: bool
) -> RecoveredRun | None:
    attempts, request, evidence = [], None, None
    for attempt in numbers:
        evidence = LogReader(paths, attempt).evidence()
        header = evidence.header
        if header is None or evidence.status == FOREIGN:
            continue  # any other fault of the log leaves its request id spent: the reconciler judges the run
        if not evidence.has_records and not with_unaccepted:
            continue
        request = header
        attempts.append(RecoveredAttempt(attempt, header.created_ns, header.boot_id, header.first_seq))
    if request is None or evidence is None or not attempts:
        return None
    word = _NO_WORD if sure and not evidence.word_synced else _last_word(evidence)
    return _recovered(paths, shard, request, attempts, evidence, word)


def _recovered(
    paths: RunPaths,
    shard: str,
    header: SegmentHeader,
    attempts: list[RecoveredAttempt],
    evidence: LogEvidence,
    word: _Word,
) -> RecoveredRun | None:
    known = header.detail
    state, verdict = word
    try:
        return RecoveredRun(
            serial=_whole(known["serial"]),
            run_id=paths.run_id,
            shard=shard,
            owner=str(known["owner"]),
            request_id=str(known["request_id"]),
            argv=_texts(known["argv"]),
            cwd=str(known["cwd"]),
            limits=_object(known["limits"]),
            completion=str(known["completion"]),
            digests={name: str(value) for name, value in _object(known["digests"]).items()},
            key_id=str(known["key_id"]),
            attempts=attempts,
            labels={name: str(value) for name, value in _object(known["labels"]).items()},
            env_names=_texts(known["env_names"]),
            nested_in=_optional_text(known.get("nested_in")),
            survives_unit_restart=_optional_bool(known.get("survives_unit_restart")),
            state=state,
            reason=_optional_text(verdict.get("reason")),
            outcome=_outcome(state, verdict),
            receipt=verdict if state is RunState.FINISHED else None,
            evidence=_object(verdict["evidence"]) if isinstance(verdict.get("evidence"), dict) else None,
            retryable=state is RunState.NOT_STARTED and verdict.get("retryable", True) is True,
            priority=_whole(known.get("priority", 0)),
            worker=evidence.worker,
            program=evidence.program,
        )
    except (KeyError, ValueError, TypeError):
        return None  # a header of another shape: its log stays, and is reported as without a row


def _last_word(evidence: LogEvidence) -> _Word:
    """A settled word of the log itself; anything less is for the reconciler to judge."""
    if evidence.receipt is not None and evidence.receipt.get("cleanup_confirmed") is not False:
        return RunState.FINISHED, evidence.receipt
    if evidence.terminal is not None and evidence.terminal[0] in _WORDS:
        kind, detail = evidence.terminal
        return _WORDS[kind], {"reason": kind, **detail}
    return _NO_WORD


def _outcome(state: RunState, verdict: dict[str, object]) -> Outcome | None:
    return Outcome.from_dict(_object(verdict["outcome"])) if state is RunState.FINISHED else None


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError("not a whole number")
    return value


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return [str(item) for item in value]


def _optional_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _optional_bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
