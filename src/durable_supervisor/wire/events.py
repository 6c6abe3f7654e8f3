"""The event document: one model per kind, chosen by ``kind``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, Field, RootModel, create_model
from pydantic.json_schema import SkipJsonSchema

from .base import Count, Document, Seconds, Seq, Time
from .details import DETAILS, Stream


class Entry(Document):
    """What every event has."""

    seq: Seq = Field(description="counts from 1 without gaps over the run's whole life")
    time: Time
    elapsed: Seconds = Field(description="monotonic seconds since the worker began")


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]  # it is absent, never null


class OutputEvent(Entry):
    """Bytes that the program wrote."""

    kind: Literal["output"]
    stream: Stream
    offset: Count = Field(description="where it begins in its stream, in recorded bytes")
    text: str = Field(description="as UTF-8; what is not UTF-8 shows as U+FFFD")
    base64: str | SkipJsonSchema[None] = Field(
        default=None,
        description="the exact bytes; there only when they are not UTF-8",
        json_schema_extra=_without_default,
    )


def _event_model(kind: str, detail: type[BaseModel]) -> type[Entry]:
    name = "".join(part.title() for part in kind.replace(".", "_").split("_")) + "Event"
    fields: dict[str, Any] = {"kind": (Literal[kind], ...), "detail": (detail, ...)}
    return create_model(name, __base__=Entry, __doc__=detail.__doc__, **fields)


_MODELS = (OutputEvent, *(_event_model(kind, detail) for kind, detail in DETAILS.items()))


class EventDocument(RootModel[Annotated[Union[_MODELS], Field(discriminator="kind")]]):  # type: ignore[valid-type]  # noqa: UP007
    """One entry of a run's timeline, one line of ``events --json``."""
