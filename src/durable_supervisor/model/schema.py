"""Names and versions of the JSON documents.

A version rises when a field goes away or changes its meaning; new fields and
new event kinds may come without, so readers skip what they do not know.
"""

from __future__ import annotations

VERSIONS = {
    "error": 1,
    "event": 1,
    "feed": 1,
    "inspect": 1,
    "list": 1,
    "page": 1,
    "receipt": 1,
    "start": 1,
    "stop": 1,
}


def schema_name(document: str) -> str:
    """What a document's ``schema`` field says, e.g. ``durable-supervisor/inspect/1``."""
    return f"durable-supervisor/{document}/{VERSIONS[document]}"
