"""WebSocket frames, cut anywhere; wsproto's server is at the other end."""

from __future__ import annotations

import collections
import json
from collections.abc import Mapping
from typing import Any

import pytest
import wsproto
from hypothesis import given
from hypothesis import strategies as st
from wsproto import events

from durable_supervisor import SupervisorError
from durable_supervisor.client.failures import LostError
from durable_supervisor.client.framing import Framing
from tests.client.raw import error
from tests.client.test_sse import pieces_of

FORMS = st.lists(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.integers(), max_size=3),
    max_size=5,
)


def shaken() -> tuple[Framing, wsproto.WSConnection, bytes]:
    """A client, a server that has accepted it, and the bytes that say so."""
    client, server = Framing("/v1/runs/x/attach"), wsproto.WSConnection(wsproto.ConnectionType.SERVER)
    server.receive_data(client.outgoing)
    client.outgoing = b""
    (request,) = server.events()
    assert isinstance(request, events.Request)
    assert request.target == "/v1/runs/x/attach"
    return client, server, server.send(events.AcceptConnection())


@given(FORMS, st.lists(st.integers(0, 10_000), max_size=20))
def test_any_pieces_give_the_same_objects(forms: list[dict[str, Any]], cuts: list[int]) -> None:
    client, server, data = shaken()
    for form in forms:
        text = json.dumps(form)
        data += server.send(events.TextMessage(text[:3], message_finished=False))
        data += server.send(events.Ping(b"there?"))
        data += server.send(events.TextMessage(text[3:]))
    data += server.send(events.CloseConnection(1000))
    found: list[Mapping[str, Any]] = []
    for piece in pieces_of(data, cuts):
        found += client.feed(piece)
    assert found == forms
    assert client.accepted
    assert client.close_code == 1000
    server.receive_data(client.outgoing)
    answers = list(server.events())
    assert sum(isinstance(answer, events.Pong) for answer in answers) == len(forms)
    assert isinstance(answers[-1], events.CloseConnection)


def test_nothing_can_be_said_after_the_others_goodbye() -> None:
    client, server, data = shaken()
    client.feed(data + server.send(events.CloseConnection(1012)))
    answered = client.outgoing
    with pytest.raises(LostError) as caught:
        client.send({"type": "stdin", "id": "1", "base64": "c2VjcmV0"})
    assert not caught.value.sent
    assert "c2VjcmV0" not in str(caught.value)
    assert client.outgoing == answered


@given(FORMS)
def test_what_is_sent_arrives(forms: list[dict[str, Any]]) -> None:
    client, server, data = shaken()
    client.feed(data)
    for form in forms:
        client.send(form)
    client.close()
    client.close()
    server.receive_data(client.outgoing)
    *messages, goodbye = server.events()
    texts = [message.data for message in messages if isinstance(message, events.TextMessage)]
    assert [json.loads(text) for text in texts] == forms
    assert isinstance(goodbye, events.CloseConnection)


@given(st.lists(st.integers(0, 10_000), max_size=10))
def test_a_refusal_is_the_error_it_tells(cuts: list[int]) -> None:
    client, server = Framing("/x"), wsproto.WSConnection(wsproto.ConnectionType.SERVER)
    server.receive_data(client.outgoing)
    list(server.events())
    body = json.dumps(error("UNKNOWN_RUN")).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    data = server.send(events.RejectConnection(status_code=404, headers=headers, has_body=True))
    data += server.send(events.RejectData(body))
    with pytest.raises(SupervisorError) as caught:
        collections.deque(map(client.feed, pieces_of(data, cuts)))
    assert caught.value.code == "UNKNOWN_RUN"


@pytest.mark.parametrize("data", [b"", b"\xff" * 20, b"\x82\x02ab"])
def test_what_is_no_conversation(data: bytes) -> None:
    """The end without a goodbye, no frames at all, and bytes where text belongs (which are passed over)."""
    client, _, accepted = shaken()
    client.feed(accepted)
    if data.startswith(b"\x82"):
        assert client.feed(data) == []
    else:
        with pytest.raises(LostError):
            client.feed(data)


def test_text_that_is_no_object() -> None:
    client, server, accepted = shaken()
    client.feed(accepted)
    with pytest.raises(SupervisorError) as caught:
        client.feed(server.send(events.TextMessage("[1]")))
    assert caught.value.code == "INTERNAL"
