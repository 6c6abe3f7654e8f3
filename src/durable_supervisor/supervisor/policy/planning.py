"""A request's plan: what its grants name now, what this machine can do, and the decision from both.

Blocking, so for a thread.  A refusal is an answer here and not raised: a request that is known
already is answered before anybody is refused for what the machine has lost since.
"""

from __future__ import annotations

import os

from ...model.errors import Phase, SupervisorError, invalid
from ...model.policy import Policy, contradiction
from ...model.request import StartRequest
from ...sandbox.files.paths import EXECUTABLE
from ..admission.host import short_of
from .confinement import Asked, Ruling, confinement
from .files import Found, is_within
from .probing import machine_facts


def rule(request: StartRequest, cwd: str, state_dir: str) -> Ruling:
    """None where nothing is asked for that takes a plan."""
    if not request.confines:
        return None
    own = os.path.realpath(state_dir)
    try:
        grants = [] if request.policy is None else _found(request.policy, cwd, own)
    except SupervisorError as error:
        return error
    try:
        facts = machine_facts()
    except OSError as error:
        return short_of(error, Phase.ADMIT)
    return confinement(Asked(request.policy, request.limits, grants, os.geteuid(), own), facts)


def _found(policy: Policy, cwd: str, own: str) -> list[Found]:
    """The grants as they are now.  Raises ``INVALID_REQUEST``."""
    if policy.filesystem is None:
        return []
    found = [_look(str(grant.path), str(grant.to_dict()["access"])) for grant in policy.filesystem]
    real = _really(found)
    for path in real:
        if is_within(path, own):
            raise invalid("policy.filesystem", f"grants {path}, which is the supervisor's own")
    allowed = [*real, *(os.path.realpath(path) for path in EXECUTABLE)]  # no grant needed to be there
    if not any(is_within(os.path.realpath(cwd), path) for path in allowed):
        raise invalid("cwd", "lies outside every grant", "grant it, or choose one that is granted")
    if is_within(os.path.realpath(cwd), own):
        raise invalid("cwd", "lies in the supervisor's own directory, which no program is granted")
    return found


def _really(found: list[Found]) -> dict[str, str]:
    """What is granted where, with no symbolic link in between.  Raises ``INVALID_REQUEST``."""
    real: dict[str, str] = {}
    for one in found:
        if real.setdefault(one.real, one.access) != one.access:
            raise invalid("policy.filesystem", f"grants {one.real} with two accesses", "give each path once")
    pair = contradiction(real)
    if pair is not None:
        problem = f"grants less for {pair[1]} than for {pair[0]}, which it is really beneath"
        raise invalid("policy.filesystem", problem)
    return real


def _look(path: str, access: str) -> Found:
    try:
        status = os.stat(path)
    except OSError as error:
        raise invalid(
            "policy.filesystem", f"grants {path}, which cannot be found: {error.strerror}"
        ) from error
    return Found(path, access, status.st_dev, status.st_ino, os.path.realpath(path))
