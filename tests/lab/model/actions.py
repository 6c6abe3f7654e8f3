"""What a step may be: a verb asked of somebody, or violence done to somebody."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tests.lab.model import actors, foreign
from tests.lab.model.books import READERS, SCRIPTS, WEIGHTS
from tests.lab.model.driver import Driver, Follower, Request
from tests.lab.model.herd import Child

T = TypeVar("T")
Action = Callable[[Driver, random.Random], None]
STARTERS = ("owner", "session", "client")
MOST_CALLS = 3  # command lines at once
COPY = "backup-"  # and the step that made it
RECENT = 12  # requests that verbs are about: older ones are mostly over


def act(driver: Driver) -> None:
    """One step of the experiment."""
    rng = driver.step()
    (action,) = rng.choices([action for _, action in ACTIONS], [weight for weight, _ in ACTIONS])
    action(driver, rng)
    driver.let_pass()


# Verbs.


def start(driver: Driver, rng: random.Random) -> None:
    """A new request, asked of one or of several at once, unless all slots were taken just now."""
    if driver.steps < driver.full_until or not answering(driver, STARTERS):
        return
    kinds = list(SCRIPTS)
    (kind,) = rng.choices(kinds, [WEIGHTS.get(kind, 1) for kind in kinds])
    request = new_request(driver, rng, kind, f"{kind}-{driver.steps}")
    several = rng.random() < 0.2 and kind != "scoped"
    for child in some(rng, answering(driver, STARTERS), 3 if several else 1):
        driver.ask(child, "start", **request.form)


def burst(driver: Driver, rng: random.Random) -> None:
    """Short runs of one host, some at once and then some more: the later ones find workers that are free.

    Half of the time such a worker is struck just before: killed, or stopped for a moment.
    """
    if driver.steps < driver.full_until:
        return
    for child in some(rng, answering(driver, STARTERS)):
        for wave in range(2):
            for number in range(rng.randint(2, 5)):
                request = new_request(driver, rng, "quick", f"quick-{driver.steps}-{wave}-{number}")
                driver.ask(child, "start", **request.form)
            driver.let_pass(rng.choice((0.0, 0.02, 0.06)))
            if rng.random() < 0.5:
                strike_spare(driver, rng)


def new_request(driver: Driver, rng: random.Random, kind: str, request_id: str) -> Request:
    form = driver.books.request(request_id, kind)
    if rng.random() < 0.5:
        form |= {"queue": True, "priority": rng.randint(-3, 3)}
    request = driver.requests[request_id] = Request(request_id, kind, form)
    return request


def again(driver: Driver, rng: random.Random) -> None:
    """An old request once more, by anybody."""
    for request in some(rng, list(driver.requests.values())[-40:]):
        for child in some(rng, answering(driver, STARTERS), 2):
            driver.ask(child, "start", **request.form)


def conflict(driver: Driver, rng: random.Random) -> None:
    """Another request under an id that is known."""
    for request in some(rng, recent(driver)):
        for child in some(rng, answering(driver, STARTERS)):
            driver.ask(child, "conflict", **{**request.form, "argv": ["true", "another"]})


def stop(driver: Driver, rng: random.Random) -> None:
    ask_about(driver, rng, "stop", grace=rng.choice((0.05, 0.3)))


def signal_(driver: Driver, rng: random.Random) -> None:
    ask_about(driver, rng, "signal", signo="USR1", target="leader")


def write(driver: Driver, rng: random.Random) -> None:
    text = f"word {driver.steps}\n" * rng.choice((1, 1, 30))
    ask_about(driver, rng, "write_stdin", kinds=READERS, text=text, eof=rng.random() < 0.1)


def resize(driver: Driver, rng: random.Random) -> None:
    ask_about(driver, rng, "resize", kinds=("terminal",), columns=rng.randint(40, 200), rows=30)


def attach(driver: Driver, rng: random.Random) -> None:
    ask_about(driver, rng, "attach", kinds=READERS, steal=rng.random() < 0.5)


def wait(driver: Driver, rng: random.Random) -> None:
    ask_about(driver, rng, "wait", timeout=rng.choice((0.2, 5)))


def inspect(driver: Driver, rng: random.Random) -> None:
    ask_about(driver, rng, "inspect")


def pages(driver: Driver, rng: random.Random) -> None:
    ask_about(driver, rng, "pages", limit=rng.choice((1, 7, 1000)))


def acknowledge(driver: Driver, rng: random.Random) -> None:
    ask_about(driver, rng, "acknowledge", stdout=rng.randint(0, 100))


def follow(driver: Driver, rng: random.Random) -> None:
    """A new follower, or somebody who goes on where one was killed."""
    orphaned = [one for one in driver.followers if one.actor is None and not one.done]
    runs = [request.run_id for request in recent(driver)]
    if runs and (len(orphaned) < 3 or rng.random() < 0.3) and len(driver.followers) < 400:
        orphaned.append(Follower(f"follower-{driver.steps}", rng.choice(runs)))
        driver.followers.append(orphaned[-1])
    for follower in some(rng, orphaned):
        for child in some(rng, answering(driver)):
            go_on(driver, follower, child)


def go_on(driver: Driver, follower: Follower, child: Child) -> None:
    """Let ``child`` follow from where the follower's book ends."""
    follower.actor = child.pid
    cursor = driver.cursor(follower)
    driver.ask(child, "follow", run=follower.run, after=cursor, name=follower.name)


def list_(driver: Driver, rng: random.Random) -> None:
    ask_anybody(driver, rng, "list", limit=rng.choice((7, 100)))


def feed(driver: Driver, rng: random.Random) -> None:
    ask_anybody(driver, rng, "feed", after=0, limit=rng.choice((50, 1000)))


def resolve(driver: Driver, rng: random.Random) -> None:
    """An operator who does not wait for judgement; what is not lost refuses him."""
    ask_about(driver, rng, "resolve", roles=STARTERS, action=rng.choice(("accept", "kill", "wait")))


def reconcile(driver: Driver, rng: random.Random) -> None:
    ask_anybody(driver, rng, "reconcile", roles=STARTERS)


def gc(driver: Driver, rng: random.Random) -> None:
    ask_anybody(driver, rng, "gc", roles=STARTERS, older_than=0, apply=True)


def import_(driver: Driver, rng: random.Random) -> None:
    ask_anybody(driver, rng, "import_", roles=STARTERS, bundle=foreign.bundle(driver.folder))


def capabilities(driver: Driver, rng: random.Random) -> None:
    ask_anybody(driver, rng, "capabilities", roles=STARTERS)


def call(driver: Driver, rng: random.Random) -> None:
    """A command line, beside whoever is there."""
    runs = [request.run_id for request in recent(driver)]
    if not runs or len(driver.herd.alive("cli")) >= MOST_CALLS:
        return
    run, name = rng.choice(runs), str(driver.folder / f"bundle-{driver.steps}")
    words = rng.choice(
        [
            ["list", "--json"],
            ["inspect", run, "--json"],
            ["events", run, "--json"],
            ["logs", run],
            ["feed", "--json"],
            ["stop", run, "--json"],
            ["wait", run, "--timeout", "1"],
            ["export", run, "-o", name],
            ["report", run, "-o", name],
            ["replay", run, "--speed", "1000"],
            ["audit", run, "--secrets-file", secrets_file(driver)],
            ["backup", str(driver.folder / f"{COPY}{driver.steps}"), "--json"],
            ["verify", "--json"],
            ["doctor", "--json"],
            ["reconcile", "--json"],
        ]
    )
    if words[0] == "stop":
        of_run(driver, run).stops += 1
    driver.verbs[f"cli {words[0]}"] += 1
    driver.herd.fork("cli", lambda end: actors.call(words, str(driver.state)))


def secrets_file(driver: Driver) -> str:
    path = driver.folder / "secrets"
    path.write_text("nobody ever printed this\n")
    return str(path)


# Violence.


def kill(driver: Driver, rng: random.Random) -> None:
    """kill -9 of one of a kind, by its weight; now and then there is none of those that are drawn."""
    kinds = rng.choices(list(KILLS), list(KILLS.values()), k=4)
    found = list(driver.herd.processes())
    for what in kinds:
        victims = [stat for kind, stat in found if kind == what and driver.is_up(stat, rng)]
        if victims:
            if driver.herd.strike(what, rng.choice(victims), signal.SIGKILL):
                driver.kills[what] += 1
            return


def kill_soon(driver: Driver, rng: random.Random) -> None:
    """A start, and its host or its worker killed in the middle of it."""
    start(driver, rng)
    time.sleep(rng.random() * 0.02)
    kill(driver, rng)


def strike_spare(driver: Driver, rng: random.Random) -> None:
    """A worker without a run: it may get one at this very moment."""
    for stat in some(rng, [stat for what, stat in driver.herd.processes() if what == "spare"]):
        if rng.random() < 0.5:
            driver.nap("spare", stat, rng.choice((0.02, 0.2, 1.0)))
        elif driver.herd.strike("spare", stat, signal.SIGKILL):
            driver.kills["spare"] += 1


def freeze(driver: Driver, rng: random.Random) -> None:
    """SIGSTOP for a while."""
    for what, stat in some(rng, list(driver.herd.processes())):
        if (stat.pid, stat.start_ticks) not in driver.herd.asleep:
            driver.nap(what, stat, rng.choice((0.02, 0.2, 1.0)))


def leave(driver: Driver, rng: random.Random) -> None:
    """Somebody goes in good order."""
    for child in some(rng, [*answering(driver), *driver.herd.alive("daemon")]):
        driver.dismiss(child)


# Choosing.


def some(rng: random.Random, candidates: Sequence[T], count: int = 1) -> Sequence[T]:
    """At most so many of them."""
    return rng.sample(candidates, min(count, len(candidates)))


def answering(driver: Driver, roles: Sequence[str] = (*STARTERS, "observer")) -> list[Child]:
    return [one for one in driver.herd.alive(*roles) if one.answered and one.end is not None]


def recent(driver: Driver) -> list[Request]:
    return [one for one in driver.requests.values() if one.run_ids][-RECENT:]


def of_run(driver: Driver, run: str) -> Request:
    (request,) = [one for one in driver.requests.values() if run in one.run_ids]
    return request


def ask_about(
    driver: Driver,
    rng: random.Random,
    op: str,
    *,
    kinds: Sequence[str] = (),
    roles: Sequence[str] = (*STARTERS, "observer"),
    **arguments: Any,
) -> None:
    """A verb about one of the recent runs."""
    known = [one for one in recent(driver) if not kinds or one.kind in kinds]
    for request in some(rng, known):
        for child in some(rng, answering(driver, roles)):
            request.stops += op == "stop"
            driver.ask(child, op, run=request.run_id, **arguments)


def ask_anybody(
    driver: Driver,
    rng: random.Random,
    op: str,
    *,
    roles: Sequence[str] = (*STARTERS, "observer"),
    **arguments: Any,
) -> None:
    for child in some(rng, answering(driver, roles)):
        driver.ask(child, op, **arguments)


KILLS = {"worker": 14.0, "zygote": 1.5, "spare": 3.0, "owner": 1.0, "session": 1.0, "daemon": 0.6,
         "client": 0.8, "observer": 0.5, "cli": 0.5, "program": 1.5}  # fmt: skip
ACTIONS: list[tuple[float, Action]] = [
    (22, start), (8, burst), (4, again), (1, conflict), (4, stop), (2, signal_), (4, write), (1, resize),
    (2, attach), (2, wait), (2, inspect), (3, pages), (1, acknowledge), (4, follow), (1, list_), (1, feed),
    (2, resolve), (1, reconcile), (0.5, gc), (0.5, import_), (0.2, capabilities), (0.9, call), (36, kill),
    (8, kill_soon), (6, freeze), (0.7, leave),
]  # fmt: skip
