"""What both faces are made of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from ..model.command import Command, Completion, Limits, completion_of
from ..model.ids import new_id
from ..model.policy import Policy
from ..model.request import Lifetime, Queueing, StartRequest, check_window, lifetime_of
from ..model.run import Run
from . import verbs
from .calls import Calls
from .connections import Connections
from .host import host_facts
from .locate import Place
from .request import Call

RECONNECT_SECONDS: Final = 30.0


class Base:
    """Connections to one service, and the rules for calls over them."""

    def __init__(self, place: Place, reconnect: float) -> None:
        self._connections = Connections(place)
        self._calls = Calls(self._connections, reconnect)

    @property
    def state_dir(self) -> str:
        """The absolute path of the state directory, as the service names it."""
        info = self._connections.info
        return self._connections.place.state_dir if info is None else info.state_dir

    def _request(
        self,
        command: Command,
        request_id: str | None,
        limits: Limits | None,
        completion: Completion | str,
        labels: Mapping[str, str] | None,
        owner: str,
        policy: Policy | None,
        lifetime: Lifetime | str,
    ) -> StartRequest:
        """Checked here as in process, so that both refuse alike; the request id is made up before anything
        is sent, so that sending it again can never run it twice."""
        return StartRequest(
            command=command,
            request_id=request_id if request_id is not None else new_id("req", os.urandom),
            limits=command.limits_with(limits) if isinstance(command, Command) else Limits(),
            completion=completion_of(completion),
            labels=labels if labels is not None else {},
            owner=owner,
            policy=policy,
            lifetime=lifetime_of(lifetime),
        )

    def _start(self, request: StartRequest, queueing: Queueing, window: int | None) -> Call[Run]:
        checked = check_window(window, request.lifetime)
        return verbs.start(request, queueing, checked, host=host_facts(request.command))
