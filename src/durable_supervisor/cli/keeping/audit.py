"""``audit``: does anything that is stored about a run hold a secret?"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

from durable_supervisor.model.errors import invalid

from ..opening.session import drive, needs_files, observing
from ..opening.unknown import is_bundle
from ..options import parse
from ..options.declared import Option
from ..options.shared import Call, Json, RunOrBundle, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out
from ..output.escape import escape_text
from .progress import progress

if TYPE_CHECKING:
    from durable_supervisor.model.audit import AuditReport

_SecretEnv = Annotated[
    list[str] | None,
    Option("--secret-env", metavar="NAME", help="Look for the value of this variable; repeatable."),
]
_SecretsFile = Annotated[
    str | None,
    Option("--secrets-file", metavar="FILE", help="Look for each line of FILE; - is stdin."),
]


def audit(
    call: Call,
    run: RunOrBundle,
    secret_env: _SecretEnv = None,
    secrets_file: _SecretsFile = None,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Search what is stored about a run for secrets.

    Its log, its journal rows and its files, for secrets as they are and as base64, hex,
    URL and JSON would have them. Without options they are asked for, unseen. Leaves
    with 1 if one is there. RUN may be a bundle.

    \b
    Example:
      dsup audit 4f7k --secret-env API_TOKEN
      vault read -field=key ci | dsup audit 4f7k --secrets-file -
    """
    shared = settings(call, json, state_dir, socket)
    if not is_bundle(run):
        needs_files(shared)
    named = _secrets(secret_env or [], secrets_file)
    return drive(_audit(shared, run, named))


async def _audit(shared: Settings, run: str, named: list[tuple[str, bytes]]) -> int:
    from durable_supervisor.bundle.reader import BundleReader
    from durable_supervisor.process.open_files import raise_limit
    from durable_supervisor.supervisor.observer import Observer

    raise_limit()  # a long log has many segments, all held open
    async with observing(shared, run) as reading:
        if not isinstance(reading, Observer | BundleReader):
            raise TypeError("files are read by an observer, or from a bundle")
        report = await reading.audit(
            run, [secret for _, secret in named], tell=partial(progress(), "searching events")
        )
    if shared.json:
        out.document(report.to_dict())
    else:
        _print(report, [name for name, _ in named])
    return exit_codes.OK if report.clean else exit_codes.FAILED


def _secrets(names: list[str], path: str | None) -> list[tuple[str, bytes]]:
    """What each is called, and what it is.  Never from argv, which ps(1) shows to everybody."""
    found = []
    for name in names:
        if "=" in name:
            raise invalid("secret_env", "takes a name alone", "everybody can see a value on a command line")
        found.append((name, os.fsencode(parse.secret_pairs([name], os.environ)[name])))
    if path is not None:
        content = parse.read_file("secrets_file", 0 if path == "-" else path)
        for number, line in enumerate(content.splitlines(), start=1):
            if line.strip():
                found.append((f"line {number}", line))
    if not found and path is None:
        found.append(("the secret", _asked()))
    if not found:
        raise invalid("secrets_file", "holds none", "one secret a line")
    return found


def _asked() -> bytes:
    if not out.is_terminal(0):
        raise invalid("secret_env", "is missing", "give --secret-env NAME or --secrets-file FILE")
    from getpass import getpass

    return os.fsencode(getpass("Secret: "))


def _print(report: AuditReport, names: list[str]) -> None:
    from durable_supervisor.model.quantities import plural, size

    for place in report.places:
        event = "" if place.seq is None else f" (event {place.seq})"
        form = "" if place.form == "plain" else f" as {place.form}"
        times = "" if place.count == 1 else f", {place.count} times"
        what = f"{names[place.secret - 1]}{form} in {place.where}: {place.field}{event}{times}"
        out.line(escape_text(what))
    for problem in report.problems:
        out.line(escape_text(f"not searched: {problem}"))
    searched = f"{plural(report.events, 'event')}, {size(report.bytes)}"
    out.line(f"{report.run_id}  {'clean' if report.clean else f'found {report.found}'}  {searched}")
