"""One entry of the route table: what the router serves and what OpenAPI tells about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import web
from pydantic import BaseModel

from ...model.errors import ErrorCode
from ..requests.queries import Parameter
from .service import Call

Handler = Callable[[Call], Awaitable[web.StreamResponse]]

RUN = "/v1/runs/{run}"
JSON = "application/json"
BYTES = "application/octet-stream"
STREAM = "text/event-stream"
ANY_FAILURE = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.PEER_DENIED,
    ErrorCode.BUSY,
    ErrorCode.SUPERVISOR_CLOSED,
    ErrorCode.JOURNAL_MISSING,
    ErrorCode.JOURNAL_NEWER,
    ErrorCode.JOURNAL_CORRUPT,
    ErrorCode.JOURNAL_IO,
    ErrorCode.INTERNAL,
)
OF_A_RUN = (ErrorCode.UNKNOWN_RUN, ErrorCode.AMBIGUOUS_RUN)


@dataclass(frozen=True, slots=True)
class Route:
    """A verb.

    ``answers``: the name of the document for each status (see `wire.documents`), or None for
    one without.  ``body``: the model of a JSON body, or ``BYTES``.  ``failures`` come on top
    of those that every route can answer with.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answers: Mapping[int, str | None]
    query: tuple[Parameter, ...] = ()
    body: type[BaseModel] | str | None = None
    media_type: str = JSON
    failures: tuple[ErrorCode, ...] = ()

    @property
    def verb(self) -> str:
        """The last word of the path, which is the name of the verb on every face."""
        return self.path.rstrip("/").rpartition("/")[2]
