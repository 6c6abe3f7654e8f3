"""The report: one HTML page that needs nothing else, whatever a program may have printed.

No byte of the program's reaches the page but through `markup.text`.  Should that ever
fail, the page's own policy lets nothing run but the one script whose hash it names, and
nothing be loaded at all.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from importlib.resources import files

from ... import __version__
from ...model.view import RunView
from . import output, sections
from .collect import Collector
from .markup import text
from .palette import rgb
from .picture import picture
from .words import command_line, outcome_words


def render(view: RunView, seen: Collector) -> Iterator[bytes]:
    """The page, in pieces of UTF-8; the same for the same run, whenever and wherever it is made."""
    for piece in _pieces(view, seen):
        yield piece.encode("utf-8")


def _pieces(view: RunView, seen: Collector) -> Iterator[str]:
    seen.finish()
    style, script = _asset("style.css") + _colours(), _asset("script.js")
    title = f"{outcome_words(view)}: {command_line(view.argv)[:120]}"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    )
    yield sections.header(view, seen)
    yield "<main>\n"
    yield sections.facts(view)
    yield sections.timeline(seen, picture(view, seen))
    yield from output.section(view, seen)
    yield sections.entries(seen)
    yield "</main>\n"
    yield sections.footer(view, seen, __version__)
    yield f"<script>{script}</script>\n</body>\n</html>\n"


def _policy(style: str, script: str) -> str:
    """Nothing is allowed but this style and this script (Content Security Policy 3)."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _colours() -> str:
    """The palette as classes: 16 that follow the theme, 240 that are what they are."""
    rules = [f".f{n}{{color:var(--c{n})}}.b{n}{{background:var(--c{n})}}" for n in range(16)]
    for number in range(16, 256):
        value = "#{:02x}{:02x}{:02x}".format(*rgb(number))
        rules.append(f".f{number}{{color:{value}}}.b{number}{{background:{value}}}")
    return "".join(rules)
