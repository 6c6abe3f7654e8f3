"""Names and versions of the JSON documents.

A version rises when a field goes away or changes its meaning; new fields and
new event kinds may come without, so readers skip what they do not know.
"""

from __future__ import annotations

VERSIONS = {
    "audit": 1,
    "backup": 1,
    "backup-manifest": 1,
    "bundle": 1,
    "capabilities": 1,
    "control": 1,
    "doctor": 1,
    "error": 1,
    "event": 1,
    "export": 1,
    "feed": 1,
    "feed-page": 1,
    "gc": 1,
    "import": 1,
    "info": 1,
    "inspect": 1,
    "journal-rows": 1,
    "list": 1,
    "page": 1,
    "receipt": 1,
    "reconcile": 1,
    "recover": 1,
    "report": 1,
    "serve": 1,
    "service": 1,
    "start": 1,
    "start-request": 1,
    "stop": 1,
    "verify": 1,
    "write-stdin": 1,
}


def schema_name(document: str) -> str:
    """What a document's ``schema`` field says, e.g. ``durable-supervisor/inspect/1``."""
    return f"durable-supervisor/{document}/{VERSIONS[document]}"
