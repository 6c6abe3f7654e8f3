"""A real browser, where there is one: ``chromium``, or what ``DURABLE_SUPERVISOR_CHROMIUM`` names."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

VARIABLE = "DURABLE_SUPERVISOR_CHROMIUM"
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND",
]  # fmt: skip


@dataclass(frozen=True)
class Browser:
    """Opens pages one at a time, each in a fresh profile."""

    program: str
    scratch: Path

    def dom(self, url: str) -> tuple[str, list[str]]:
        """The document after its scripts ran, and what the console said."""
        done = self.run("--dump-dom", url)
        return done.stdout.decode(), [line for line in done.stderr.decode().splitlines() if "CONSOLE" in line]

    def screenshot(self, url: str, width: int, height: int, *options: str) -> Path:
        """A PNG of the window."""
        picture = self.scratch / "page.png"
        picture.unlink(missing_ok=True)
        self.run(f"--window-size={width},{height}", f"--screenshot={picture}", *options, url)
        return picture

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        profile = self.scratch / "profile"
        shutil.rmtree(profile, ignore_errors=True)
        return subprocess.run(
            [self.program, *OPTIONS, f"--user-data-dir={profile}", *words],
            capture_output=True,
            timeout=90,
            check=True,
        )


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    program = os.environ.get(VARIABLE) or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip(f"no chromium on PATH, and {VARIABLE} is not set")
    return Browser(program, tmp_path)
