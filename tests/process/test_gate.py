"""A program is held before its exec, in whichever way its process came to be."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
from pathlib import Path

import pytest

from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.locks import LockState, probe_lock
from tests.process.gates import WAYS, command, worker
from tests.support import PATIENCE, eventually

pytestmark = pytest.mark.parametrize("way", WAYS)


def is_gone(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is None or stat.dead


def test_the_program_finds_what_it_was_given_and_nothing_of_its_worker(way: str, tmp_path: Path) -> None:
    script = """
        look = '''if True:
            import json, os, sys
            names = os.listdir("/proc/self/fd")
            status = dict(line.split(":\\t") for line in open("/proc/self/status"))
            print(json.dumps({
                "descriptors": sorted(int(one) for one in names if os.path.lexists("/proc/self/fd/" + one)),
                "cwd": os.getcwd(),
                "umask": os.umask(0),
                "argv": sys.argv,
                "env": {name: value for name, value in os.environ.items() if name != "LC_CTYPE"},
                "leads": os.getpid() == os.getsid(0) == os.getpgid(0),
                "signals": [status[name].strip().strip("0") for name in ("SigPnd", "SigBlk", "ShdPnd")],
                "ignored": int(status["SigIgn"], 16),
            }))
        '''
        for number in (40, 127, *((128, 500) if way == "clone" else ())):
            os.dup2(2, number, inheritable=True)
        for signo in STRAY_SIGNALS:
            signal.signal(signo, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGURG})
        argv = (sys.executable, "-I", "-S", "-c", look, "a b", "", "\\udcff")
        paused = make(*argv, cwd=arguments[0], umask=0o27, env={"X": "=y", "\\u00fc": "\\udc80"})
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGTERM, signal.SIGURG}
        paused.release()
        assert ended(paused.pid) == 0
    """
    ignored_by_python = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    found = json.loads(worker(script, way, tmp_path))
    # The C library keeps 32 and 33 to itself (signal(7)): a copy inherits them from whoever started us.
    found["ignored"] &= ~(1 << 31 | 1 << 32)
    assert found == {
        "descriptors": [0, 1, 2],
        "cwd": str(tmp_path),
        "umask": 0o27,
        "argv": ["-c", "a b", "", "\udcff"],
        "env": {"X": "=y", "ü": "\udc80"},
        "leads": True,
        "signals": ["", "", ""],
        "ignored": ignored_by_python,
    }


def test_a_paused_child_holds_no_lock_and_two_pipes(way: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    script = """
        from durable_supervisor.process.locks import try_lock
        log = os.open(arguments[0], os.O_RDWR | os.O_CLOEXEC)
        assert try_lock(log)
        paused = make("/bin/touch", arguments[1])
        os.close(log)
        print(paused.pid, flush=True)
        sys.stdin.read()
        paused.discard()
    """
    argv = command(script, way, log, tmp_path / "made")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        # The child closes what it has been given as it goes.
        eventually(lambda: probe_lock(str(log)) is LockState.FREE)
        eventually(lambda: len(os.listdir(f"/proc/{pid}/fd")) == 5)
    assert process.returncode == 0
    assert is_gone(pid)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("when", ["made", "at the gate"])
def test_a_child_whose_worker_dies_never_executes_the_program(way: str, when: str, tmp_path: Path) -> None:
    script = """
        paused = make("/bin/touch", arguments[0])
        print(paused.pid, flush=True)
        sys.stdin.read()
    """
    argv = command(script, way, tmp_path / "made")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        if when == "at the gate":
            eventually(lambda: len(os.listdir(f"/proc/{pid}/fd")) == 5)
        process.kill()
    eventually(lambda: is_gone(pid))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_child_killed_while_paused_is_no_failure_and_never_runs(
    way: str, signo: signal.Signals, tmp_path: Path
) -> None:
    """Nor does a handler of its worker's run in it."""
    script = """
        signo, handled = int(arguments[1]), []
        if signo != signal.SIGKILL:
            signal.signal(signo, lambda *_: handled.append(os.getpid()))
        paused = make("/bin/touch", arguments[0])
        while len(os.listdir(f"/proc/{paused.pid}/fd")) != 5:
            time.sleep(0.001)
        os.kill(paused.pid, signo)
        paused.release()
        print(ended(paused.pid), handled)
    """
    assert worker(script, way, tmp_path / "made", int(signo)) == f"{-signo} []\n"
    assert not (tmp_path / "made").exists()


def test_a_child_that_was_stopped_goes_on(way: str, tmp_path: Path) -> None:
    script = """
        paused = make("/bin/touch", arguments[0])
        os.kill(paused.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, paused.pid, os.WSTOPPED)
        os.kill(paused.pid, signal.SIGCONT)
        paused.release()
        print(ended(paused.pid))
    """
    assert worker(script, way, tmp_path / "made") == "0\n"
    assert (tmp_path / "made").exists()


def test_what_exec_refuses_comes_back(way: str, tmp_path: Path) -> None:
    for name, text, mode in (("plain", "x", 0o644), ("empty", "", 0o755), ("busy", "#!/bin/sh\n", 0o755)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    (tmp_path / "binary").write_bytes(Path("/bin/true").read_bytes())
    (tmp_path / "binary").chmod(0o755)
    script = """
        os.chdir(arguments[0])
        writing = open("binary", "ab")
        print(json.dumps([
            failed("missing", cwd=arguments[0]),
            failed("plain/x", cwd=arguments[0]),
            failed("plain", cwd=arguments[0]),
            failed("empty", cwd=arguments[0]),
            failed("binary", cwd=arguments[0]),
            failed("/bin/true", "x" * 200_000),
            failed("/bin/true", *["x" * 100_000] * 100),
            failed("/bin/true", env={f"V{number}": "x" * 100_000 for number in range(100)}),
            failed("/bin/true", "a\\0b"),
            failed("/bin/true", env={"a=b": "c"}),
            failed("/bin/true", "\\ud800"),
            failed("/bin/true"),
        ]))
    """
    names = ("ENOENT", "ENOTDIR", "EACCES", "ENOEXEC", "ETXTBSY", *["E2BIG"] * 3, *["EINVAL"] * 3)
    assert json.loads(worker(script, way, tmp_path)) == [*(["exec", name] for name in names), 0]


def test_what_chdir_refuses_comes_back(way: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    script = """
        os.chdir(arguments[0])
        places = ("missing", "file", "x" * 300)
        print(json.dumps([failed("/bin/true", cwd=os.path.join(arguments[0], place)) for place in places]))
    """
    names = ("ENOENT", "ENOTDIR", "ENAMETOOLONG")
    assert json.loads(worker(script, way, tmp_path)) == [["cwd", name] for name in names]


def test_what_cannot_be_prepared_comes_back(way: str) -> None:
    script = """
        print(*failed("/bin/true", stdio=Stdio(0, 1, 99)))
    """
    assert worker(script, way) == "prepare EBADF\n"


def test_no_process_left_is_a_failure_to_fork(way: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("another user's processes cannot be counted")
    script = """
        os.setresuid(3131, 3131, 3131)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        before = os.listdir("/proc/self/fd")
        print(*failed("/bin/true"), os.listdir("/proc/self/fd") == before)
    """
    assert worker(script, way) == "fork EAGAIN True\n"


def test_arguments_of_a_megabyte_arrive_whatever_the_worker_does_meanwhile(way: str) -> None:
    script = """
        import gc
        import hashlib
        sums = '''if True:
            import hashlib, os, sys
            print(hashlib.sha256(repr((sys.argv[1:], os.environ["V7"])).encode()).hexdigest())
        '''
        def texts(letter):
            return [f"{letter}{number:06d}" * 1000 for number in range(60)]
        argv = (sys.executable, "-I", "-S", "-c", sums, *texts("a"))
        paused = make(*argv, env={f"V{number}": text for number, text in enumerate(texts("b"))})
        del argv
        for _ in range(3):
            gc.collect()
            others = [texts("c") for _ in range(50)]
        paused.release()
        assert ended(paused.pid) == 0
        print(hashlib.sha256(repr((texts("a"), texts("b")[7])).encode()).hexdigest())
    """
    told, expected = worker(script, way).split()
    assert told == expected


def test_nothing_of_many_children_stays_behind(way: str) -> None:
    script = """
        def one(program):
            paused = make(program)
            try:
                paused.release()
                ended(paused.pid)
            except StartFailure:
                pass
            make(program).discard()
        one("/bin/true")
        before = os.listdir("/proc/self/fd")
        for _ in range(20):
            one("/bin/true")
            one("/missing")
        print(os.listdir("/proc/self/fd") == before, len(clone._in_use))
    """
    assert worker(script, way) == "True 0\n"


def test_the_program_controls_its_terminal(way: str) -> None:
    script = """
        look = '''if True:
            import os
            terminal = os.open("/dev/tty", os.O_RDWR)
            leads = os.getpid() == os.getsid(0) == os.tcgetpgrp(terminal)
            print(os.ttyname(0), os.ttyname(2), leads)
        '''
        argv = (sys.executable, "-I", "-S", "-c", look)
        paused = make(*argv, stdio=Stdio(0, 0, 0, terminal=True))
        paused.release()
        sys.exit(ended(paused.pid))
    """
    master, slave = pty.openpty()
    name = os.ttyname(slave)
    with subprocess.Popen(command(script, way), stdin=slave, start_new_session=True) as process:
        os.close(slave)
        assert process.wait(PATIENCE) == 0
    read = b""
    while b"\n" not in read and select.select([master], [], [], 30)[0]:
        read += os.read(master, 1000)
    os.close(master)
    assert read.decode().split() == [name, name, "True"]


def test_whoever_stands_in_a_descriptor_already_is_inherited(way: str) -> None:
    script = """
        os.set_inheritable(1, False)
        paused = make("/bin/echo", "heard", stdio=Stdio(0, 1, 2))
        paused.release()
        assert ended(paused.pid) == 0
    """
    assert worker(script, way) == "heard\n"
