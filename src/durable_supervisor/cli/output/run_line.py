"""One line about a run, apart from `rendering`: a start that goes well says no more."""

from __future__ import annotations

from . import describe, out, style
from .escape import escape_text


def run_line(form: describe.Form, admission: str = "new") -> str:
    """Its first word is the run id.  ``admission``: how ``start`` came to it."""
    painted = style.Style(out.STDOUT).paint(describe.state_colour(form), describe.state_word(form))
    return (
        f"{form.get('run_id')}  {painted}"
        f"  (request {escape_text(str(form.get('request_id')))}, attempt {form.get('attempt')}"
        f"{', not started again' if admission == 'existing' else ''})"
    )
