"""The page: bounded, well formed, the same each time, and inert whatever was printed or asked for."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_supervisor.bundle.report import pane as panes
from durable_supervisor.bundle.report.collect import Collector, HeadAndTail
from durable_supervisor.bundle.report.pane import Pane
from durable_supervisor.bundle.report.picture import picture, tick_step
from durable_supervisor.bundle.report.rates import Rates
from durable_supervisor.model.events import Event, Kind
from tests.bundle.views import RECEIPT, event, output, page_of, view_of

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>\"'&\u202e\x00\x1b]0;t\x07"
TAGS = {
    "html", "head", "meta", "title", "style", "script", "body", "a", "header", "main", "footer", "section",
    "p", "h1", "h2", "span", "code", "dl", "div", "dt", "dd", "svg", "desc", "path", "text", "rect", "g",
    "ul", "li", "label", "input", "output", "button", "fieldset", "legend", "small", "b", "i", "pre", "table",
    "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
EXPECTED = (
    "exited 3", "make report", "status is the kernel's own", "hello", "TERM to 2 processes", "team=infra",
    "4.0 KiB of stdout not kept here (limit)", "nightly, owner local",
)  # fmt: skip
DETAILS = [
    "identity", "grace", "reason", "signal", "pids", "step", "outcome", "duration", "code", "bytes", "stream",
    "op",
]  # fmt: skip
VOID = {"meta", "input"}


class Checker(HTMLParser):
    """Every tag is one of ours and is closed; nothing runs or loads."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.scripts = 0
        self.comments = 0
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name not in ("style", "src", "srcdoc", "action", "formaction"), name
            assert name != "href" or value == "#output"
        self.scripts += tag == "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        self.comments += 1

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert (checker.scripts, checker.comments) == (1, 0)
    return checker


def life(*printed: Event) -> list[Event]:
    return [
        event(1, Kind.RUN_DISPATCHED, 0.0, attempt=1, argv=["make"], cwd="/"),
        event(2, Kind.PROGRAM_RELEASED, 0.01),
        *printed,
        event(90, Kind.CONTROL_RECEIVED, 2.0, id="c1", op="stop"),
        event(91, Kind.RUN_STOPPING, 2.0, reason="timeout", grace=10.0),
        event(92, Kind.PROGRAM_SIGNALLED, 2.0, signal=15, name="SIGTERM", pids=[1, 2]),
        event(93, Kind.OUTPUT_DROPPED, 2.5, first_seq=93, reason="limit", stream="stdout", bytes=4096),
        event(94, Kind.PROGRAM_EXITED, 4.0, code=3, signal=None),
        event(95, Kind.RUN_FINISHED, 4.0, outcome=RECEIPT["outcome"], duration=4.0),
    ]


def test_it_says_what_happened_and_how_it_is_known() -> None:
    words = " ".join(check(page_of(view_of(), life(output(3, b"hello\n", seconds=1)))).words)
    for expected in EXPECTED:
        assert expected in words


def test_it_is_the_same_each_time() -> None:
    events = life(output(3, b"hello\n"))
    assert page_of(view_of(), events) == page_of(view_of(), events)


def test_its_policy_names_its_own_style_and_script_and_nothing_else() -> None:
    page = page_of(view_of(), life())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    for tag in ("style", "script"):
        source = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert source is not None
        digest = base64.b64encode(hashlib.sha256(source[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


@settings(max_examples=40)
@given(st.text(max_size=60), st.binary(max_size=60))
def test_hostile_words_stay_words_wherever_they_stand(text: str, data: bytes) -> None:
    words = HOSTILE + text
    view = view_of(
        argv=[words], cwd=words, request_id=words, owner=words, labels={words: words}, reason=words,
        evidence={words: [words]}, resolution={"note": words}, log_health={"status": words}, nested_in=words,
        pty={"columns": words, "rows": 1, "term": words}, receipt=None, outcome=None, state="unknown",
    )  # fmt: skip
    events = [
        Event(1, 0, 0, words, {words: words}),
        event(2, Kind.RUN_STOPPING, 1.0, reason=words, grace=words),
        event(3, Kind.PROGRAM_SIGNALLED, 1.0, signal=words, pids=words, step=words),
        event(4, Kind.CONTROL_RECEIVED, 1.0, op=words),
        event(5, Kind.OUTPUT_DROPPED, 1.0, first_seq=words, reason=words, stream=words, bytes=words),
        event(6, Kind.PROGRAM_SPAWNED, 1.0, identity=words, canonical=words),
        event(7, Kind.RUN_FINISHED, 1.0, outcome=words, duration=words),
        output(8, words.encode("utf-8", "surrogatepass") + data, stream=words),
    ]
    page = page_of(view, events)
    check(page)
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "\x00" not in page


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30)
@given(st.data())
def test_documents_of_any_shape_make_a_page(draw: st.DataObject) -> None:
    """A stranger's bundle may say anything where a number or an object should stand."""
    receipt = {name: draw.draw(JUNK) for name in RECEIPT}
    limits = {name: draw.draw(JUNK) for name in ("timeout", "grace", "max_stdout_bytes", "on_limit")}
    detail: dict[str, object] = {name: draw.draw(JUNK) for name in DETAILS}
    kinds = [value for name, value in vars(Kind).items() if name.isupper() and value != Kind.OUTPUT]
    events = [Event(seq, 0, seq, kind, detail) for seq, kind in enumerate(kinds, start=1)]
    check(page_of(view_of(receipt=receipt, limits=limits, program={"pid": draw.draw(JUNK)}), events))


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "running", "outcome": None, "receipt": None},
        {"state": "queued", "outcome": None, "receipt": None, "head": 0},
        {"state": "not_started", "outcome": None, "receipt": None, "reason": "exec_failed"},
        {"state": "quarantined", "outcome": None, "receipt": None, "reason": "lock_leaked"},
        {"outcome": {"kind": "signaled", "code": None, "signal": 9}},
        {"outcome": {"kind": "timed_out", "code": None, "signal": 15}},
    ],
)
def test_every_kind_of_end_has_its_page(changes: dict[str, object]) -> None:
    check(page_of(view_of(**changes), []))


def test_a_hundred_megabytes_make_a_small_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panes, "MAX_LINES", 50)
    monkeypatch.setattr(panes, "MAX_CHARACTERS", 20_000)
    line = b"x" * 99 + b"\n"
    events = [output(seq, line * 400, seconds=seq / 100) for seq in range(1, 30)]
    page = page_of(view_of(), [*events, output(99, b"the end\n" + b"y" * 50_000, seconds=1)])
    check(page)
    assert "left out of this page" in page
    assert len(page) < 150_000


def test_head_and_tail_and_nothing_between() -> None:
    pane = Pane()
    for number in range(10_000):
        pane.add("stdout", 0.0, number, f"line {number}\n".encode())
    pane.finish()
    assert pane.head[0].spans[0].text == "line 0"
    assert pane.tail[-1].spans[0].text == "line 9999"
    assert len(pane.head) + len(pane.tail) + pane.left_out == 10_000 == pane.lines["stdout"]


@pytest.mark.parametrize("waiting", [300, 3000, 1 << 20])
def test_what_is_left_out_is_counted(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of it was read for colours, and wherever the chunks end."""
    monkeypatch.setattr(panes, "MAX_LINES", 20)
    monkeypatch.setattr(panes, "MAX_WAITING", waiting)
    printed = b"".join(b"\x1b[3%dmline %04d\n" % (number % 8, number) for number in range(500))
    pane = Pane()
    for at in range(0, len(printed), 97):
        pane.add("stdout", 0.0, at + 1, printed[at : at + 97])
    pane.finish()
    whole = [line for line in [*pane.head, *pane.tail] if not line.continued]
    assert pane.lines["stdout"] == 500
    assert "".join(span.text for span in whole[0].spans) == "line 0000"
    assert "".join(span.text for span in whole[-1].spans) == "line 0499"
    assert 0 <= len(pane.head) + len(pane.tail) + pane.left_out - 500 <= 2  # a cut line is there in two parts


def test_a_line_without_end_is_shown_in_parts() -> None:
    pane = Pane()
    for _ in range(30):
        pane.add("stdout", 0.0, 1, b"z" * 1000)
    pane.finish()
    shown = [*pane.head, *pane.tail]
    assert all(line.size <= panes.MAX_LINE for line in shown)
    assert sum(line.size for line in shown) == 30_000
    assert [line.continued for line in shown[:2]] == [False, True]
    assert pane.lines["stdout"] == 1


def test_streams_keep_their_own_lines() -> None:
    pane = Pane()
    pane.add("stdout", 0.0, 1, b"Name? ")
    pane.add("stderr", 0.1, 2, b"warning\n")
    pane.add("stdout", 0.2, 3, b"Bob\n")
    pane.finish()
    shown = [(line.stream, "".join(span.text for span in line.spans)) for line in pane.head]
    assert shown == [("stdout", "Name? Bob"), ("stderr", "warning")]


@given(st.lists(st.tuples(st.floats(0, 1e7), st.integers(0, 1 << 30)), max_size=30))
def test_rates_lose_no_byte(samples: list[tuple[float, int]]) -> None:
    rates = Rates()
    for seconds, count in sorted(samples):
        rates.add("stdout", seconds, count)
    assert sum(rates.bins.get("stdout", [])) == sum(count for _, count in samples)


@given(st.floats(0.001, 1e8))
def test_the_axis_has_a_few_lines(seconds: float) -> None:
    assert 0 < seconds / tick_step(seconds) <= 19


@given(st.lists(st.floats(0, 1e6), max_size=40))
def test_the_picture_is_well_formed(moments: list[float]) -> None:
    seen = Collector()
    for seq, seconds in enumerate(sorted(moments), start=1):
        seen.add(event(seq, Kind.PROGRAM_SIGNALLED, seconds, signal=seq % 64 + 1, pids=[1]))
    ElementTree.fromstring(picture(view_of(), seen))


@given(st.integers(0, 50), st.integers(1, 10))
def test_head_and_tail_count_what_they_leave_out(count: int, most: int) -> None:
    kept: HeadAndTail[int] = HeadAndTail(most)
    for number in range(count):
        kept.add(number)
    shown = list(kept)
    assert len(shown) + kept.left_out == count
    assert shown == sorted(shown)
    assert not count or (shown[0], shown[-1]) == (0, count - 1)
