"""Text into HTML.  Everything that is not a constant of ours goes through `text`."""

from __future__ import annotations

import re

from .sgr import PLAIN, STRANGE, Look, Span, visible

_STRANGE = re.compile(f"[{STRANGE}]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})


def text(value: object) -> str:
    """Safe as content and as a quoted attribute; characters that cannot be seen are made visible."""
    return _STRANGE.sub(lambda match: visible(match.group()), str(value)).translate(_ESCAPES)


def span(piece: Span) -> str:
    """One stretch of output."""
    words = text(piece.text)
    if piece.mark:
        return f"<i>{words}</i>"
    return words if piece.look == PLAIN else f'<span class="{" ".join(classes(piece.look))}">{words}</span>'


def classes(look: Look) -> list[str]:
    """The names of the style sheet for a look: ``f1`` red, ``b4`` on blue, ``fd`` ``bd`` swapped."""
    front, back = look.foreground, look.background
    names = []
    if look.reverse:
        names += ["fd" if back is None else f"f{back}", "bd" if front is None else f"b{front}"]
    else:
        names += [f"f{front}"] if front is not None else []
        names += [f"b{back}"] if back is not None else []
    switches = (
        ("w", look.bold), ("d", look.dim), ("t", look.italic), ("u", look.underline), ("x", look.strike),
    )  # fmt: skip
    return names + [name for name, on in switches if on]
