"""What an attached viewer may send over its WebSocket.

Each message has an ``id`` of the viewer's choice, which its one answer carries again.
"""

from __future__ import annotations

import base64
from typing import Annotated, ClassVar, Literal

from pydantic import Field, RootModel

from .base import Count, Document, Side
from .requests import Base64Form

MessageId = Annotated[str, Field(min_length=1, max_length=128)]


class StdinMessage(Base64Form):
    """Bytes for the program's stdin."""

    type: Literal["stdin"]
    id: MessageId
    following: Count = 0  # bytes that further messages bring of the same write

    @property
    def data(self) -> bytes:
        return base64.b64decode(self.base64)


class EofMessage(Document):
    """The end of the program's stdin."""

    data: ClassVar = b""
    following: ClassVar = 0
    type: Literal["eof"]
    id: MessageId


class ResizeMessage(Document):
    """The new size of the run's terminal."""

    type: Literal["resize"]
    id: MessageId
    columns: Side
    rows: Side


class LeaseMessage(Document):
    """Become the one writer."""

    type: Literal["lease"]
    id: MessageId
    steal: bool = False


AttachMessage = StdinMessage | EofMessage | ResizeMessage | LeaseMessage


class AttachForm(RootModel[Annotated[AttachMessage, Field(discriminator="type")]]):
    """Any of them."""
