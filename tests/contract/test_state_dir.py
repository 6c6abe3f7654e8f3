"""The state directory: private from the start, any path, one owner, refused where it cannot be trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from durable_supervisor import ErrorCode, Observer, SupervisorError
from tests.contract.hosts import check_error, host, open_error, tree_of, works
from tests.contract.runs import Runs
from tests.support import eventually, eventually_async

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
WITH_A_RUN = """
async with Supervisor.open(STATE) as sup:
    run = await sup.start(Command(argv=["sh", "-c", "echo out; read line"], stdin="open"))
    async for event in sup.follow(run.id):
        if event.kind == "output":
            break
    await sup.write_stdin(run.id, b"end\\n")
    await sup.wait(run.id, timeout=60)
report(run=run.id)
"""


async def test_of_a_key_all_is_kept_or_nothing(state_dir: Path, tmp_path: Path) -> None:
    """The disk takes only a part of it: half a key would be a directory that nobody can open."""
    code = """
        place = StateDir(STATE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
        try:
            load_key(place, create=True)
        except SupervisorError as error:
            refused = error.code.value
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        report(refused=refused, left=os.listdir(STATE))
    """
    before = "import resource\nfrom durable_supervisor.supervisor.state.state_dir import StateDir, load_key"
    assert host(code, state_dir, tmp_path, before=before) == {"refused": "STATE_DIR_REFUSED", "left": []}
    await works(state_dir)


# Modes.


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_everything_is_private_from_creation_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """A watcher that looks all the time never sees anything wider, not even half-way."""
    state = tmp_path / "made" / "by" / "it"
    watcher = f"""
        watched = {{}}
        stop = threading.Event()
        def watch():
            while not stop.is_set():
                for folder, folders, files in os.walk({str(tmp_path / "made")!r}):
                    for name in [*folders, *files, ""]:
                        try:
                            mode = os.lstat(os.path.join(folder, name)).st_mode
                        except OSError:
                            continue
                        if mode & 0o077:
                            watched[os.path.join(folder, name)] = oct(mode)
        threading.Thread(target=watch, daemon=True).start()
        """
    code = WITH_A_RUN.replace("report(", "stop.set(); report(wide=watched, ")
    # Imports come first: under umask 0777 Python could not even write its caches.
    facts = host(code, state, tmp_path, before=watcher, preexec_fn=lambda: os.umask(umask))
    assert facts["wide"] == {}
    for path in [state, *state.rglob("*")]:
        mode = path.lstat().st_mode
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path


async def test_the_control_socket_is_private(runs: Runs) -> None:
    run = await runs.sh("read line", stdin="open")
    await runs.event(run, "program.released")
    (sock,) = await eventually_async(lambda: list(runs.state_dir.rglob("*.sock")))
    mode = sock.lstat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    await runs.sup.write_stdin(run.id, b"", eof=True)
    await runs.wait(run)
    eventually(lambda: not sock.exists(), message="an ended worker leaves no socket")


async def test_a_program_gets_the_hosts_umask_and_0_1_2_only(runs: Runs) -> None:
    before = os.umask(0o027)
    try:
        run = await runs.python(
            "import os; m = os.umask(0); print(oct(m), *sorted(os.listdir('/proc/self/fd'))); "
            "print(*(os.readlink(f'/proc/self/fd/{n}').partition(':')[0] for n in (0, 1, 2)))"
        )
    finally:
        os.umask(before)
    await runs.wait(run)
    # 3 is the listing itself.
    assert await runs.output(run) == b"0o27 0 1 2 3\n/dev/null pipe pipe\n"


# Refusals.


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701, 0o777])
async def test_a_directory_open_to_others_is_refused_with_the_fix(state_dir: Path, mode: int) -> None:
    os.chmod(state_dir, mode)
    error = await open_error(state_dir, ErrorCode.STATE_DIR_REFUSED)
    assert error.hint.startswith(f"if it is meant for this alone: chmod 700 {state_dir};")
    with pytest.raises(SupervisorError) as caught:
        Observer.open(state_dir)
    check_error(caught.value, ErrorCode.STATE_DIR_REFUSED)
    assert list(state_dir.iterdir()) == []
    os.chmod(state_dir, 0o700)
    await works(state_dir)


async def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at" / "all")
    await open_error(tmp_path / "file", ErrorCode.STATE_DIR_REFUSED)
    await open_error(tmp_path / "fifo", ErrorCode.STATE_DIR_REFUSED)
    await open_error(tmp_path / "file" / "below", ErrorCode.STATE_DIR_REFUSED)
    assert (tmp_path / "file").read_text() == "mine"


async def test_a_file_where_runs_should_be_is_refused(state_dir: Path) -> None:
    (state_dir / "runs").write_text("mine")
    await open_error(state_dir, ErrorCode.STATE_DIR_REFUSED)
    assert tree_of(state_dir) == {"runs": (stat.S_IFREG | 0o644, b"mine")}


@ROOT_ONLY
async def test_somebody_elses_directory_is_refused(tmp_path: Path) -> None:
    """As the other user, for root may open anything: each side is refused the other's directory."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)
    error = await open_error(theirs, ErrorCode.STATE_DIR_REFUSED)
    assert "65534" in error.message
    assert list(theirs.iterdir()) == []
    ours = tmp_path / "ours"
    await works(ours)
    before = tree_of(ours)
    answers = tmp_path / "answers"
    answers.mkdir()
    os.chown(answers, 65534, 65534)
    code = """
    errors = {}
    for path in (STATE, STATE + "/deeper", os.path.dirname(STATE) + "/new"):
        try:
            async with Supervisor.open(path):
                pass
        except SupervisorError as error:
            errors[os.path.basename(path)] = error.to_dict()
    async with Supervisor.open(os.path.dirname(REPORT) + "/own") as sup:
        run = await sup.start(Command(argv=["id", "-u"]))
        final = await sup.wait(run.id, timeout=60)
    report(errors=errors, final=final.to_dict())
    """
    facts = host(code, ours, answers, prefix=AS_NOBODY, cwd="/")
    assert {name: error["code"] for name, error in facts["errors"].items()} == dict.fromkeys(
        ("ours", "deeper", "new"), "STATE_DIR_REFUSED"
    )
    assert facts["final"]["outcome"]["code"] == 0, "an ordinary user needs no root"
    assert tree_of(ours) == before
    assert not (tmp_path / "new").exists()


# It may look into any directory, to get at this Python and these files; it owns nothing and writes nowhere.
AS_NOBODY = [
    "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
    "--inh-caps", "-all,+dac_read_search", "--ambient-caps", "-all,+dac_read_search",
]  # fmt: skip


def in_a_mount_namespace(commands: str) -> list[str]:
    return ["unshare", "--mount", "sh", "-c", f'{commands}\nexec "$@"', "sh"]


@ROOT_ONLY
async def test_a_read_only_directory_is_refused_and_can_be_read(tmp_path: Path, state_dir: Path) -> None:
    await works(state_dir)
    before = tree_of(state_dir)
    code = """
    try:
        async with Supervisor.open(STATE):
            pass
    except SupervisorError as error:
        refusal = error.to_dict()
    async with Observer.open(STATE) as seen:
        listed = await seen.list()
        view = await seen.inspect(listed.runs[0].id)
        page = await seen.events(view.id)
        audit = await seen.audit(view.id, ["nobody-prints-this"])
    try:
        async with Supervisor.open(STATE + "/never/made"):
            pass
    except SupervisorError as error:
        below = error.to_dict()
    seen = dict(state=view.state.value, end=page.end, count=len(page.events), clean=audit.clean)
    report(refusal=refusal, below=below, **seen)
    """
    prefix = in_a_mount_namespace(
        f"mount --bind '{state_dir}' '{state_dir}'; mount -o remount,ro,bind '{state_dir}'"
    )
    facts = host(code, state_dir, tmp_path, prefix=prefix)
    assert facts["refusal"]["code"] == facts["below"]["code"] == "STATE_DIR_REFUSED"
    assert "read-only" in facts["refusal"]["message"].lower()
    assert facts["refusal"]["hint"]
    assert (facts["state"], facts["end"], facts["clean"]) == ("finished", True, True)
    assert facts["count"] > 4
    assert tree_of(state_dir) == before


# Space.


@ROOT_ONLY
async def test_a_full_disk_starts_nothing_and_spends_no_id(tmp_path: Path) -> None:
    """A small tmpfs, seen by this host alone."""
    state = tmp_path / "small"
    state.mkdir(mode=0o700)
    code = """
    errors = []
    async with Supervisor.open(STATE) as sup:
        room = os.statvfs(STATE).f_bavail * os.statvfs(STATE).f_frsize
        with open(STATE + "/ballast", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, room - 1024 * 1024)
        for _ in range(2):
            try:
                await sup.start(Command(argv=["true"]), request_id="one")
            except SupervisorError as error:
                errors.append(error.to_dict())
        listed = len((await sup.list()).runs)
        logs = [name for _, _, names in os.walk(STATE + "/runs") for name in names]
        os.unlink(STATE + "/ballast")
        run = await sup.start(Command(argv=["true"]), request_id="one")
        final = await sup.wait(run.id, timeout=60)
    ballast = os.open(STATE + "/ballast", os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(ballast, b"x" * 4096):
            pass
    except OSError:
        pass
    for path in (STATE, STATE + "/new"):
        try:
            async with Supervisor.open(path) as sup:
                await sup.start(Command(argv=["true"]), request_id="two")
        except SupervisorError as error:
            errors.append(error.to_dict())
    os.truncate(STATE + "/ballast", 0)
    async with Supervisor.open(STATE) as sup:
        again = await sup.start(Command(argv=["true"]), request_id="one")
    report(errors=errors, listed=listed, logs=logs, attempt=run.attempt, state=final.state.value,
           same=again.id == run.id)
    """
    prefix = in_a_mount_namespace(f"mount -t tmpfs -o size=40m,mode=700 none '{state}'")
    facts = host(code, state, tmp_path, prefix=prefix)
    assert [error["code"] for error in facts["errors"]] == ["NO_SPACE"] * 4
    assert all(error["retryable"] and error["hint"] for error in facts["errors"])
    assert (facts["listed"], facts["logs"]) == (0, [])
    assert (facts["attempt"], facts["state"], facts["same"]) == (1, "finished", True)


@ROOT_ONLY
async def test_an_owner_stops_the_run_that_has_filled_the_disk(tmp_path: Path) -> None:
    """The journal takes no note of the wish: what runs is stopped by its worker all the same."""
    state = tmp_path / "small"
    state.mkdir(mode=0o700)
    code = """
    async with Supervisor.open(STATE) as sup:
        run = await sup.start(Command(argv=["sleep", "3131"]))
        ballast = fill_disk()
        stopped = await sup.stop(run.id, grace=1)
        os.ftruncate(ballast, 0)
    report(state=stopped.state.value, confirmed=stopped.confirmed, outcome=stopped.outcome.kind.value)
    """
    prefix = in_a_mount_namespace(f"mount -t tmpfs -o size=40m,mode=700 none '{state}'")
    facts = host(code, state, tmp_path, prefix=prefix)
    assert facts == {"state": "finished", "confirmed": True, "outcome": "cancelled"}


@ROOT_ONLY
async def test_a_full_disk_leaves_reading_and_stop_at_work_with_no_owner_alive(tmp_path: Path) -> None:
    """SQLite has no room for the -shm file that it wants beside a journal, be it only to read."""
    state = tmp_path / "small"
    state.mkdir(mode=0o700)
    code = """
    async with Supervisor.open(STATE) as sup:
        done = await sup.start(Command(argv=["sh", "-c", "exit 7"]))
        await sup.wait(done.id, timeout=60)
        run = await sup.start(Command(argv=["sleep", "3131"]))
    ballast = fill_disk()
    async with Observer.open(STATE) as eyes:
        listed = [(seen.id, seen.state.value) for seen in (await eyes.list()).runs]
        last = (await eyes.events(done.id)).events[-1].kind
        await eyes.stop(run.id, grace=1)
        os.ftruncate(ballast, 0)
        async with Supervisor.open(STATE) as sup:
            later = await sup.start(Command(argv=["true"]))
        listed_later = [seen.id for seen in (await eyes.list()).runs]
    report(listed=listed, last=last, state=(await Observer.open(STATE).inspect(run.id)).state.value,
           ids=[run.id, done.id], later=listed_later[0] == later.id)
    """
    prefix = in_a_mount_namespace(f"mount -t tmpfs -o size=40m,mode=700 none '{state}'")
    facts = host(code, state, tmp_path, prefix=prefix)
    assert facts["listed"] == [[facts["ids"][0], "running"], [facts["ids"][1], "finished"]]
    assert (facts["last"], facts["state"], facts["later"]) == ("run.finished", "finished", True)
