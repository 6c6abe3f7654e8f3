"""What each figure must and should reach, and how it reads in the table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """``must`` and ``goal`` are in ``unit``; ``most``: an upper bound, else a lower one.  None: only told."""

    title: str
    unit: str
    must: float | None
    goal: float | None
    most: bool = True

    def meets(self, value: float, bound: float | None) -> bool | None:
        if bound is None:
            return None
        return value <= bound if self.most else value >= bound


TARGETS: dict[str, Target] = {
    "start.acked": Target("durable start: call -> intent durable, p50", "F", 3, 2),
    "start.released": Target("durable start: call -> program released, p50", "B", 3.25, 2.25),
    "start.released_p99": Target("the same, p99", "x its median", 1.5, 1.5),
    "receipt": Target("`true`: start -> durable receipt in the caller's hands, p50", "B", 4.75, 3.5),
    "throughput": Target("runs/s, `true`, 16 callers", "x posix_spawn", 0.18, 0.25, most=False),
    "slow_sync": Target("runs/s with 3 ms added to every sync", "x without", 0.7, 0.9, most=False),
    "fsyncs": Target("fsyncs of the supervisor per start, 16 callers", "fsyncs", 0.5, 0.2),
    "output.blocks": Target("output in 64 KiB writes", "x pipe -> file", 0.7, 0.9, most=False),
    "output.secrets": Target("the same with 20 secrets to redact", "x pipe -> file", None, 0.6, most=False),
    "output.lines": Target("output in 80-byte lines", "x pipe -> file", 0.3, 0.5, most=False),
    "output.stall": Target("longest stall of the program's write", "ms", 100, 20),
    "follow": Target("write in the program -> event in a follower's hands, p50", "F", 5, 2),
    "deep_page": Target("page of 100 x 1 KiB at event 1,000,000", "x the first", 1.5, 1.1),
    "paging.raw": Target("100 MiB paged to a client, raw", "x capture", 0.7, 0.9, most=False),
    "paging.json": Target("100 MiB paged to a client, JSON", "x capture", 0.3, 0.4, most=False),
    "paging.dumps": Target("the same, by `json.dumps`", "x capture", None, None, most=False),
    "idle_run": Target("live idle run, PSS of its worker, 50 live", "MB", 1.25, 0.75),
    "at_rest.memory": Target("supervisor and zygote, 100 live silent runs, PSS", "MB", 60, 40),
    "at_rest.wakeups": Target("the same: wake-ups in 10 s", "wake-ups", 10, 0),
    "chatty.lock_errors": Target("32 chatty runs at once: lock errors", "errors", 0, 0),
    "chatty.commit": Target("32 chatty runs at once: longest commit", "ms", 100, 30),
    "growth.open": Target("open with 100,000 finished runs", "x with 100", 1.5, 1.1),
    "growth.start": Target("start with 100,000 finished runs", "x with 100", 1.5, 1.1),
    "growth.inspect": Target("inspect with 100,000 finished runs", "x with 100", 1.5, 1.1),
    "growth.list": Target("list page with 100,000 finished runs", "x with 100", 1.5, 1.1),
    "cli.version": Target("`durable-supervisor --version`", "x python -c pass", 5, 2),
    "cli.start": Target("`durable-supervisor start -- true`", "x python -c pass", 12, 6),
}
