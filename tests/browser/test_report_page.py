"""The report in a real browser: it looks like something, its search works, and hostile output is inert."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from durable_supervisor.model.events import Event, Kind
from tests.browser.conftest import Browser
from tests.browser.png import pixels
from tests.bundle.views import event, output, page_of, view_of

HOSTILE = (
    b"</pre></div></script><script>document.title='owned'</script>\n"
    b"<img src=x onerror=\"document.title='owned'\"><svg onload=alert(1)>\n"
    b"<!-- <style>*{display:none}</style> &lt;b&gt; \x00 \xff \xe2\x80\xaegnp.exe\n"
    b"\x1b]0;owned\x07\x1b[2J\x9b\n"
    b"<meta http-equiv=refresh content=0;url=http://127.0.0.1:9/><base href=http://127.0.0.1:9/>\n"
)


def hostile_events(seq: int, seconds: float) -> list[Event]:
    """A stranger's log may say anything of what happened, also where the picture has its labels."""
    words = HOSTILE.decode("utf-8", "replace")
    return [
        event(seq, Kind.CONTROL_RECEIVED, seconds, op=words),
        event(seq + 1, Kind.RUN_STOPPING, seconds, reason="timeout", grace=words),
        event(seq + 2, Kind.PROGRAM_SIGNALLED, seconds, signal=words, pids=[words], step=words),
        event(seq + 3, Kind.OUTPUT_DROPPED, seconds, first_seq=seq + 3, bytes=1, stream=words, reason=words),
        Event(seq + 4, 0, int(seconds * 1e9), Kind.RUN_WARNING, {"text": words, words: words}),
        event(seq + 5, Kind.PROGRAM_SPAWNED, seconds, identity={"pid": words}, canonical=words),
    ]


@pytest.fixture
def report(tmp_path: Path) -> str:
    """The address of a report on a run with hostile output."""
    colours = b"".join(b"\x1b[%dmcolour %d\x1b[0m needle\n" % (code, code) for code in range(30, 38))
    events = [
        event(1, Kind.RUN_DISPATCHED, 0.0),
        event(2, Kind.PROGRAM_RELEASED, 0.01),
        output(3, HOSTILE, seconds=0.5),
        output(4, colours, seconds=1.0),
        output(5, b"a Needle on stderr\n", stream="stderr", seconds=2.0),
        *hostile_events(6, 2.5),
        event(20, Kind.PROGRAM_EXITED, 4.0, code=3, signal=None),
    ]
    page = tmp_path / "report.html"
    page.write_text(page_of(view_of(argv=["sh", "-c", HOSTILE.decode("utf-8", "replace")]), events))
    return page.as_uri()


def test_hostile_output_is_inert(browser: Browser, report: str) -> None:
    dom, console = browser.dom(report)
    assert console == []
    assert "<title>exited 3:" in dom
    assert "owned'" in dom  # as text
    assert dom.count("<script>") == 1
    assert not re.search(r"<(?:img|base|meta http-equiv=.?refresh)", dom)
    assert "&lt;/script&gt;&lt;script&gt;document.title" in dom


def test_the_search_finds_and_filters(browser: Browser, report: str) -> None:
    """The page runs its own script, which its policy lets it."""
    dom, console = browser.dom(f"{report}#q=needle")
    assert console == []
    assert len(re.findall(r'class="l [oe] hit', dom)) == 9
    assert len(re.findall(r'class="l [oe] hit now"', dom)) == 1
    assert 'class="bar" role="search">' in dom  # no longer hidden


@pytest.mark.parametrize("scheme", ["1", "0"], ids=["light", "dark"])
def test_it_looks_like_something(browser: Browser, report: str, scheme: str) -> None:
    picture = browser.screenshot(report, 700, 900, f"--blink-settings=preferredColorScheme={scheme}")
    rows = pixels(picture)
    assert len(rows) == 900
    colours = {pixel[:3] for row in rows[::3] for pixel in row[::3]}
    assert len(colours) > 40
    ground = rows[2][2][:3]
    assert (sum(ground) > 600) == (scheme == "1")


def test_it_prints(browser: Browser, report: str, tmp_path: Path) -> None:
    file = tmp_path / "report.pdf"
    browser.run(f"--print-to-pdf={file}", report)
    assert file.read_bytes().startswith(b"%PDF-")
