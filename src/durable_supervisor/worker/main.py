"""One run, from its spec to its receipt.

The order of records is the guarantee: ``run.dispatched`` before the fork,
``program.spawned`` and ``program.released`` before the gate opens, ``program.exited``
as soon as waitid(2) says so, and the receipt last, durable, under the same lock.
"""

from __future__ import annotations

import os
import signal
import socket
from functools import cache

from ..model.events import Kind
from ..process import libc
from ..process.clock import Clock
from ..process.failpoints import failpoint
from ..process.gate import PausedProgram, fork_paused
from ..process.identity import identity_from_stat, read_stat, self_identity
from ..process.program import Program, StartFailure, Stdio, canonical, check_cwd, resolve
from ..process.signals import STRAY_SIGNALS, ignore, reset, unblock_all
from ..runlog.bounds import segment_size
from ..runlog.create import read_header
from ..runlog.format import SegmentHeader
from ..runlog.paths import RunPaths
from ..runlog.writer import LogFullError, LogWriter
from . import resting
from .desk import Desk
from .lifetime import HostGone
from .numbers import CHANNEL_FD, LAST_FD, LOG_FD
from .reuse import Reuse
from .spec import Spec, receive_spec
from .tending import Tending
from .waiting import Waiting

_STARTED = 0
_FAILED = 1
_MAX_CRASH_TEXT = 8192  # characters; the end says the most


def work(cause: str | None = None, *, hardened: bool = False, forked: bool = False) -> None:
    """The whole life of a worker process.  Never returns.

    ``cause``: why it was started by exec although a zygote was expected to fork it.
    ``hardened``: it has waited for its run, and is ready.  ``forked``: by a zygote, so that its
    supervisor may have another run for it after this one; see `reuse`.
    """
    status = _FAILED
    try:
        if not hardened:
            harden()
        reuse = Reuse(forked=forked)
        for fd in (LOG_FD, CHANNEL_FD):
            os.set_inheritable(fd, False)
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, CHANNEL_FD)
        failpoint("worker.waiting")
        handed = _first_run(channel)
        while handed is not None:
            tending = attempt(*handed, channel, cause)
            status = _FAILED if tending is None else _STARTED
            if tending is None or not reuse.offered(tending):
                break
            del tending, handed
            handed = reuse.take(channel)
    finally:
        # Whatever was raised: the log has it, or there is none to tell.  No interpreter teardown:
        # the lock should go as soon as the work is done.
        os._exit(status)


def _first_run(channel: socket.socket) -> tuple[Spec, int] | None:
    """Its spec and its log, which was there before it."""
    spec = receive_spec(channel)
    return None if spec is None else (spec, LOG_FD)


def harden() -> None:
    """Become independent of whoever started us, and the parent of every orphan below us."""
    os.umask(0o077)
    os.chdir("/")
    ignore(STRAY_SIGNALS)  # TERM and USR1 get their handlers when the loop takes over
    reset([signal.SIGCHLD])  # ignored, it would break waitid (wait(2))
    unblock_all()
    close_strangers(LAST_FD)
    libc.set_child_subreaper()
    libc.set_process_name("dsup-worker")


def close_strangers(last: int) -> None:
    """Descriptors above ``last``, which other libraries of the host left inheritable, are none of ours."""
    ours = resting.descriptors()
    for name in os.listdir("/proc/self/fd"):
        if int(name) > last and int(name) not in ours:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself


def attempt(spec: Spec, log_fd: int, channel: socket.socket, cause: str | None) -> Tending | None:
    """One run: with a durable receipt and a free lock, only the channel is open yet; else None."""
    failpoint("worker.spec_received")
    tending = _run(spec, channel, log_fd, cause)
    if tending is not None:
        tending.close()
    return tending


def _run(spec: Spec, channel: socket.socket, log_fd: int, cause: str | None) -> Tending | None:
    """Up to the receipt, which is durable then; None where there is none."""
    clock = Clock()
    paths = RunPaths(spec.runs_dir, spec.shard, spec.run_id)
    header, header_bytes = read_header(log_fd)
    if header is None:
        return None  # not a log that anybody could read back
    log = _open_log(spec, log_fd, paths, header, header_bytes, clock)
    failpoint("worker.log_open")
    try:
        desk = Desk(log, paths, channel, nowhere=spec.model)
        tending = Tending(spec, desk, clock)
        waiting = None
        if spec.queued:
            log.keep_whole_reserve()  # who knows what the disk is like by then
            waiting = Waiting(spec, desk, tending.host)
        if waiting is not None and not waiting.until_dispatched():
            desk.socket.remove()
            return None
        _record_dispatch(spec, log, cause)
        paused = _start(spec, tending, log, header.directory_id)
        if paused is None:
            desk.socket.remove()
            log.trim()
            return None
        if waiting is not None:
            waiting.serve_held()
        tending.until_finished()
        if spec.model:
            paused.forget()
        return tending
    except Exception as error:
        _record_crash(log, spec, error)
        raise


def _open_log(
    spec: Spec, fd: int, paths: RunPaths, header: SegmentHeader, header_bytes: int, clock: Clock
) -> LogWriter:
    cap_out, cap_err = spec.max_stdout_bytes, spec.max_stderr_bytes
    log = LogWriter(
        fd,
        paths,
        header,
        segment_bytes=segment_size(cap_out, cap_err),
        stdout_cap=cap_out,
        stderr_cap=cap_err,
        truncate=spec.on_limit == "truncate",
        clock=clock,
        header_bytes=header_bytes,
    )
    if spec.model:
        log.stays_in_memory()
    return log


@cache
def _identity_of(pid: int) -> dict[str, object]:
    """Ours, which stays the same from run to run; by our pid, since forks find what the zygote has found."""
    return self_identity().to_dict()


def _record_dispatch(spec: Spec, log: LogWriter, cause: str | None) -> None:
    """Who owns the run from now on: in the log before anything is forked."""
    detail: dict[str, object] = {
        "attempt": spec.attempt,
        "identity": _identity_of(os.getpid()),
        "argv": spec.shown_argv,
        "cwd": spec.shown_cwd,
    }
    if spec.pty is not None:
        detail["pty"] = spec.pty
    log.append(Kind.RUN_DISPATCHED, detail)
    if cause is not None:
        log.append(Kind.RUN_WARNING, {"reason": "started_by_exec", "cause": cause})
    log.flush()
    failpoint("worker.dispatched")


def _start(spec: Spec, tending: Tending, log: LogWriter, directory_id: str) -> PausedProgram | None:
    """Through the gate.  None: user code provably never ran, and the log says why."""
    try:
        check_cwd(spec.cwd)
        path = resolve(spec.argv[0], spec.cwd, spec.env.get("PATH", os.defpath))
        stdio = tending.prepare()
        paused = _fork(spec, path, stdio, tending, directory_id)
        tending.watch_signals()  # the child must not have them
        tending.executable = _executable(spec, path)
        _record_release(log, paused, tending)
        failpoint("worker.released")
        if not spec.model:  # whose program stays where it is
            paused.release()
    except HostGone:
        tending.refuse_without_host()
        return None
    except LogFullError:
        # That no release is in the log is the proof that it never ran; to write more might add it late.
        return None
    except StartFailure as failure:
        failpoint("worker.exec_failed")
        tending.refuse(failure)
        return None
    failpoint("worker.running")
    tending.began(paused.pid)
    return paused


def _fork(spec: Spec, path: str, stdio: Stdio, tending: Tending, directory_id: str) -> PausedProgram:
    env = dict(spec.env)
    env["DURABLE_SUPERVISOR_RUN_ID"] = spec.run_id
    program = Program(path, spec.argv, spec.cwd, env, spec.umask)
    if spec.plan is None:
        paused = fork_paused(program, stdio)
    else:
        from .confining import fork_confined  # most runs have no plan

        group = f"{directory_id}.{spec.run_id}.{spec.attempt}"
        paused, tending.enforcement, tending.resources = fork_confined(spec.plan, program, stdio, group)
    for fd in {stdio.stdin, stdio.stdout, stdio.stderr}:
        os.close(fd)
    return paused


def _executable(spec: Spec, path: str) -> dict[str, object]:
    return {
        "requested": spec.shown_argv[0],
        "canonical": spec.shown(canonical(path)),
    }


def _record_release(log: LogWriter, paused: PausedProgram, tending: Tending) -> None:
    """Who it is, then that it may run.  What cannot be recorded, or has lost its host, is not released."""
    try:
        if tending.host is not None:
            tending.host.check()
        stat = read_stat(paused.pid)
        if stat is None:
            raise OSError("the paused program cannot be seen in /proc")
        log.append(
            Kind.PROGRAM_SPAWNED,
            {"identity": identity_from_stat(stat).to_dict(), **(tending.executable or {})},
        )
        failpoint("worker.spawned")
        if tending.spec.plan is not None:
            log.append(Kind.PROGRAM_CONFINED, {"enforcement": tending.enforcement})
        log.append(Kind.PROGRAM_RELEASED, {})
        log.flush()
    except (LogFullError, OSError):
        paused.discard()
        raise


def _record_crash(log: LogWriter, spec: Spec, error: BaseException) -> None:
    """Our own failure, as evidence for whoever has to judge this run."""
    import traceback  # costs more than the rest of a start, and is hardly ever needed

    # Redacted before it is cut: half a secret would not be known as one.
    text = spec.shown("".join(traceback.format_exception(error)))[-_MAX_CRASH_TEXT:]
    try:
        log.append(Kind.RUN_WORKER_CRASHED, {"text": text})
        log.flush()
    except (LogFullError, OSError):
        return
