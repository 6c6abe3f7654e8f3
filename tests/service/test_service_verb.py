"""``service``: the unit, and what is done with it."""

from __future__ import annotations

import os
import plistlib
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor.cli.service import units
from tests.cli.helpers import Cli

UNIT = "systemd/user/durable-supervisor.service"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty configuration, so that nobody's own is touched."""
    (tmp_path / "config").mkdir()
    return tmp_path / "config"


@pytest.fixture
def cli(state_dir: Path) -> Cli:
    return Cli(state_dir)


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def test_the_unit_spares_runs_and_is_watched(cli: Cli) -> None:
    said = settings(cli.ok("service", "print", "--", "--max-concurrent-runs", "8").stdout)
    expected = {
        "Type": "notify",
        "NotifyAccess": "main",
        "KillMode": "process",
        "Delegate": "yes",
        "OOMPolicy": "continue",
        "Restart": "on-failure",
        "WatchdogSec": "60",
        "Environment": "DURABLE_SUPERVISOR_UNIT=%n",
    }
    assert {name: said.get(name) for name in expected} == expected
    words = said["ExecStart"].removeprefix(":").split()
    assert words[0] == sys.executable
    assert words[words.index("serve") + 1 :] == [
        *("--state-dir", str(cli.state_dir), "--max-concurrent-runs", "8", "--log-format", "json")
    ]


def test_nothing_in_the_unit_binds_programs(cli: Cli) -> None:
    said = settings(cli.ok("service", "print").stdout)
    binding = (
        "NoNewPrivileges",
        "PrivateTmp",
        "ProtectSystem",
        "ProtectHome",
        "SystemCallFilter",
        "LimitNOFILE",
    )
    assert not [name for name in binding if name in said]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("/plain/path-1.2_3", "/plain/path-1.2_3"),
        ("", '""'),
        ("a b", '"a b"'),
        ("50%", "50%%"),
        ('say "hi"\\', '"say \\"hi\\"\\\\"'),
        ("a'b;c", '"a\'b;c"'),
        ("line\nbreak", '"line\\x0abreak"'),
        ("é", '"\\xc3\\xa9"'),
        (os.fsdecode(b"\xff"), '"\\xff"'),
    ],
)
def test_words_are_quoted_for_systemd(word: str, text: str) -> None:
    assert units.quoted(word) == text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("folder", ["plain", "odd name 50% $HOME", "a \"quoted\" 'name' \\ 50%"])
def test_systemd_takes_the_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    python = tmp_path / folder / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    unit = tmp_path / units.NAME
    unit.write_text(units.systemd_unit("/state with 'odd' \\ words %h", ["--max-queued-runs", "3"]))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if units.NAME in line]
    assert (done.returncode, ours) == (0, [])


def test_install_and_uninstall(cli: Cli, home: Path) -> None:
    path, config = home / UNIT, str(home)
    would = cli.ok("service", "install", "--dry-run", "--json", XDG_CONFIG_HOME=config).document
    assert (would["changed"], would["path"]) == (True, str(path))
    assert not path.exists()
    assert f"would write {path}" in cli("service", "install", "--dry-run", XDG_CONFIG_HOME=config).stderr

    did = cli.ok("service", "install", "--json", XDG_CONFIG_HOME=config).document
    assert (did["changed"], did["ran"], did["content"]) == (True, [], None)
    assert did["next"][:2] == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now durable-supervisor.service",
    ]
    assert path.read_text() == would["content"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0
    assert cli.ok("service", "install", "--json", XDG_CONFIG_HOME=config).document["changed"] is False
    assert [one.name for one in path.parent.iterdir()] == [path.name]

    assert cli.ok("service", "uninstall", "--json", XDG_CONFIG_HOME=config).document["changed"] is True
    assert not path.exists()
    assert cli.ok("service", "uninstall", "--json", XDG_CONFIG_HOME=config).document["changed"] is False


def test_somebody_elses_unit_is_left_alone(cli: Cli, home: Path) -> None:
    path = home / UNIT
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/mine\n")
    for action in ("install", "uninstall"):
        refused = cli("service", action, "--json", XDG_CONFIG_HOME=str(home))
        assert (refused.code, refused.error["code"]) == (2, "INVALID_REQUEST")
    assert path.read_text() == "[Service]\nExecStart=/mine\n"


def test_now_calls_the_manager(cli: Cli, home: Path, tmp_path: Path) -> None:
    """A stand-in on PATH writes down how it is called: the real one would change this machine."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ "$2" != fail ]\n')
    (tools / "systemctl").chmod(0o755)
    config, path = str(home), f"{tools}:{os.environ['PATH']}"
    did = cli.ok("service", "install", "--now", "--json", XDG_CONFIG_HOME=config, PATH=path).document
    assert did["ran"] == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now durable-supervisor.service",
    ]
    cli.ok("service", "uninstall", "--now", "--json", XDG_CONFIG_HOME=config, PATH=path)
    assert (tmp_path / "calls").read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now durable-supervisor.service",
        "--user disable --now durable-supervisor.service",
        "--user daemon-reload",
    ]
    (tools / "systemctl").write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
    failed = cli("service", "install", "--now", "--json", XDG_CONFIG_HOME=config, PATH=path)
    assert (failed.code, "no bus" in failed.error["message"]) == (1, True)


@pytest.mark.parametrize(
    "words",
    [
        ["install", "--", "--no-such-option"],
        ["install", "--", "--max-concurrent-runs", "many"],
        ["install", "--", "--socket-mode", "rw"],
        ["enable"],
        ["install", "--launchd"],
        ["print", "--", "word"],
    ],
)
def test_mistakes_are_told_before_anything_is_written(cli: Cli, home: Path, words: list[str]) -> None:
    assert cli("service", *words, XDG_CONFIG_HOME=str(home)).code == 2
    assert list(home.iterdir()) == []


def test_launchd_gets_a_list_and_a_word_of_truth(cli: Cli) -> None:
    result = cli("service", "print", "--launchd")
    assert result.code == 0
    form = plistlib.loads(result.raw)
    assert form["AbandonProcessGroup"] is True
    assert form["ProgramArguments"][0] == sys.executable
    assert "does not run on macOS" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_is_told_that_its_service_would_not_start(cli: Cli, home: Path) -> None:
    words = ("service", "install", "--dry-run")
    told = cli(*words, XDG_CONFIG_HOME=str(home))
    assert told.code == 0
    assert "service install -- --allow-root" in told.stderr
    meant = cli(*words, "--", "--allow-root", XDG_CONFIG_HOME=str(home))
    assert "does not run as root" not in meant.stderr
