"""The output as lines that can be searched, each with its stream and its time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...model.quantities import plural, size
from ...model.view import RunView
from .collect import Collector
from .markup import span, text
from .pane import Line
from .words import clock

_CODES = {"stdout": "o", "stderr": "e", "note": "n"}
_BATCH = 200


def section(view: RunView, seen: Collector) -> Iterator[str]:
    """The bar to search and filter with, then the lines."""
    pane = seen.pane
    yield (
        '<section aria-labelledby="h-out"><h2 id="h-out">Output</h2>\n'
        f"{_bar(pane.lines)}"
        '<div id="output" class="pane" tabindex="0" role="region" aria-label="What the program printed">\n'
    )
    if not pane.head:
        yield '<p class="none">The program printed nothing.</p>'
    yield from _lines(pane.head)
    if pane.left_out or pane.left_out_bytes:
        yield (
            f'<div class="l n"><b></b><pre>{plural(pane.left_out, "line")}, about '
            f"{size(pane.left_out_bytes)}, left out of this page; "
            f"all of it: dsup logs {text(view.id)}, or dsup logs with the bundle</pre></div>\n"
        )
    yield from _lines(pane.tail)
    yield "</div></section>\n"


def _bar(lines: dict[str, int]) -> str:
    return (
        '<div class="bar" role="search" hidden>'
        '<label class="find"><span class="sr">Search the output</span>'
        '<input id="q" type="search" placeholder="Search the output  ( / )" autocomplete="off" '
        'spellcheck="false"></label><output id="n" aria-live="polite"></output>'
        '<button type="button" id="prev" title="Shift+Enter" aria-label="Previous match">↑</button>'
        '<button type="button" id="next" title="Enter" aria-label="Next match">↓</button>'
        '<fieldset><legend class="sr">Which stream</legend>'
        f"{_choice('both', 'both', checked=True)}"
        f"{_choice('o', _counted(lines, 'stdout'))}"
        f"{_choice('e', _counted(lines, 'stderr'))}</fieldset>"
        '<label class="sw"><input type="checkbox" id="wrap" checked> wrap</label>'
        '<label class="sw"><input type="checkbox" id="times" checked> times</label></div>\n'
    )


def _counted(lines: dict[str, int], stream: str) -> str:
    return f"{stream} <small>{lines.get(stream, 0):,}</small>"


def _choice(value: str, words: str, *, checked: bool = False) -> str:
    mark = " checked" if checked else ""
    radio = f'<input type="radio" name="s" value="{value}"{mark}>'
    return f'<label class="ch">{radio}<span>{words}</span></label>'


def _lines(lines: Iterable[Line]) -> Iterator[str]:
    batch: list[str] = []
    for line in lines:
        batch.append(_line(line))
        if len(batch) == _BATCH:
            yield "".join(batch)
            batch.clear()
    yield "".join(batch)


def _line(line: Line) -> str:
    code = _CODES.get(line.stream, "o")
    more = " c" if line.continued else ""
    words = "".join(map(span, line.spans))
    return f'<div class="l {code}{more}"><b>{clock(line.seconds)}</b><pre>{words}</pre></div>\n'
