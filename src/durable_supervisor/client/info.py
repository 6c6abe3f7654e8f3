"""What a service says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..model.answers import Capacity
from ..model.capabilities import Capabilities
from ..model.errors import ErrorCode, Phase, SupervisorError
from ..model.forms import wall_ns
from .request import Call, Form, get

API_VERSION = 1


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """``phase``: ``accepting`` or ``draining``.  ``kind``: ``daemon`` or ``embedded``.

    ``caller``: who we are to it (principal, owner, namespace).
    ``limits``: ``max_body_bytes``, ``max_page``, ``max_concurrent_runs`` and so on (None: no
    limit).  ``runs``: how many are ``held`` and ``queued``.
    """

    version: str
    api_versions: tuple[int, ...]
    phase: str
    kind: str
    pid: int
    state_dir: str
    directory_id: str
    started_ns: int
    caller: dict[str, Any]
    limits: dict[str, Any]
    runs: dict[str, Any]
    document: Form = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The info document, as it came."""
        return dict(self.document)

    @property
    def max_body_bytes(self) -> int:
        """What one request may carry."""
        return int(self.limits["max_body_bytes"])

    @classmethod
    def from_dict(cls, form: Form) -> ServiceInfo:
        """From an info document.  Raises KeyError, TypeError, ValueError."""
        return cls(
            version=form["version"],
            api_versions=tuple(form["api_versions"]),
            phase=form["phase"],
            kind=form.get("kind", "embedded"),
            pid=form["pid"],
            state_dir=form["state_dir"],
            directory_id=form["directory_id"],
            started_ns=wall_ns(form["started_at"]),
            caller=dict(form["caller"]),
            limits=dict(form["limits"]),
            runs=dict(form["runs"]),
            document=form,
        )


def _capacity(form: Form) -> Capacity:
    limits, runs = form["limits"], form["runs"]
    if runs["held"] is None:
        raise SupervisorError(
            ErrorCode.PEER_DENIED,
            "how many runs there are of all owners is for the operator of this service",
            phase=Phase.CONNECT,
            hint="`info` tells the limits",
        )
    return Capacity(
        limits["max_concurrent_runs"],
        limits["max_runs_per_owner"],
        limits["max_queued_runs"],
        runs["held"],
        runs["queued"],
    )


def check_version(info: ServiceInfo) -> None:
    """Raises ``UNSUPPORTED_API_VERSION``, naming both sides'."""
    if API_VERSION not in info.api_versions:
        theirs = ", ".join(str(version) for version in info.api_versions)
        raise SupervisorError(
            ErrorCode.UNSUPPORTED_API_VERSION,
            f"this client speaks API version {API_VERSION}, the service ({info.version}) speaks {theirs}",
            phase=Phase.CONNECT,
            hint="upgrade the older of the two",
            details={"client": [API_VERSION], "supported": list(info.api_versions)},
        )


INFO = Call(get("info", "/v1/info"), ServiceInfo.from_dict)
CAPACITY = Call(INFO.request, _capacity)
CAPABILITIES = Call(get("capabilities", "/v1/capabilities"), Capabilities.from_dict)
