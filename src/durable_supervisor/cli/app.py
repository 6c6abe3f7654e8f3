"""The typer application: verbs by name, each loaded when it is called.

One verb's module is imported per call, so that ``start`` does not pay for
``doctor``; ``--help`` imports them all.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from . import errors, exit_codes, out
from .main import PROGRAM, called_name
from .options import Json, Settings, SocketPath, StateDir, settings

# verb: (module, function), in the order of --help.
VERBS: Final[dict[str, tuple[str, str]]] = {
    "start": ("verbs_start", "start"),
    "run": ("verbs_run", "run"),
    "list": ("verbs_read", "list_runs"),
    "inspect": ("verbs_read", "inspect"),
    "events": ("verbs_events", "events"),
    "logs": ("verbs_logs", "logs"),
    "attach": ("verbs_attach", "attach"),
    "replay": ("verbs_watch", "replay"),
    "wait": ("verbs_read", "wait"),
    "stop": ("verbs_control", "stop"),
    "signal": ("verbs_control", "signal"),
    "write-stdin": ("verbs_control", "write_stdin"),
    "resolve": ("verbs_admin", "resolve"),
    "reconcile": ("verbs_admin", "reconcile"),
    "recover": ("verbs_admin", "recover"),
    "gc": ("verbs_gc", "gc"),
    "backup": ("verbs_backup", "backup"),
    "verify": ("verbs_verify", "verify"),
    "feed": ("verbs_events", "feed"),
    "export": ("verbs_bundle", "export"),
    "report": ("verbs_bundle", "report"),
    "audit": ("verbs_audit", "audit"),
    "serve": ("verbs_serve", "serve"),
    "service": ("verbs_service", "service"),
    "doctor": ("verbs_doctor", "doctor"),
    "capabilities": ("verbs_capabilities", "capabilities"),
}
# What the same is called in other tools.
_ELSEWHERE: Final = {
    "exec": "run",
    "help": "--help",
    "kill": "stop",
    "ls": "list",
    "ps": "list",
    "show": "inspect",
    "status": "inspect",
    "tail": "logs",
    "version": "--version",
}
# The words after these verbs belong to the program: `dsup run ls -l` needs no `--`.
_TAKES_ARGV: Final = {"start", "run"}


class _AsGiven:
    """Hands a word of the command line on as it is.

    typer builds a pydantic adapter to turn a str into a str; importing pydantic
    costs more than the rest of ``start`` together, and our own parsers judge the words.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        return value


def _words_as_given(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", False) is None:  # typer's own cache of its adapter
            setattr(parameter, "_runtime_param", _AsGiven())  # noqa: B010
    return parameters


def _named_plainly(argument: Any) -> Any:
    """Shows an argument by its metavar alone, without typer's braces and Python types."""
    record, name = argument.get_help_record, argument.metavar
    usage = [name] if argument.nargs == 1 or name.endswith("...") else [name, "[ARGUMENT]..."]

    def help_record(ctx: Any) -> tuple[str, str] | None:
        found = record(ctx)
        return None if found is None else (name, found[1].replace("  [required]", ""))

    setattr(argument, "get_help_record", help_record)  # noqa: B010
    setattr(argument, "get_usage_pieces", lambda ctx: usage)  # noqa: B010
    return argument


class VerbCommand(TyperCommand):
    """One verb."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            if parameter.param_type_name == "argument" and parameter.metavar:
                _named_plainly(parameter)

    def get_params(self, ctx: Any) -> list[Any]:
        return _words_as_given(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # here, since typer would leave with 1
            out.close_quietly()
            return exit_codes.BROKEN_PIPE


class VerbGroup(TyperGroup):
    """A group whose commands are built at their first use."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _words_as_given(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = command(cmd_name)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = [_ELSEWHERE[args[0]]] if args[0] in _ELSEWHERE else get_close_matches(args[0], VERBS, n=1)
            meant = f", did you mean '{near[0]}'?" if near else ""
            raise errors.usage(f"no such verb: {args[0]}{meant}", called_name())
        return super().resolve_command(ctx, args)


def command(verb: str) -> Any:
    """One verb, ready to be called or to judge its options."""
    module, function = VERBS[verb]
    verb_function = getattr(importlib.import_module(f".{module}", __package__), function)
    single = _typer()
    context = {
        "help_option_names": ["-h", "--help"],
        "allow_interspersed_args": verb not in _TAKES_ARGV,
        "max_content_width": 100,
    }
    single.command(verb, cls=VerbCommand, epilog=exit_codes.HELP, context_settings=context)(verb_function)
    return typer.main.get_command(single)


def _typer(**options: Any) -> typer.Typer:
    # Plain help: rich's would read `[NAME]` as markup, and would have to be imported.
    return typer.Typer(
        add_completion=options.pop("add_completion", False),
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        **options,
    )


def _application() -> typer.Typer:
    application = _typer(
        cls=VerbGroup,
        add_completion=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog=exit_codes.HELP,
    )
    application.callback()(_shared)
    return application


def _shared(
    context: typer.Context,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
    version: bool = typer.Option(False, "--version", "-V", help="Print the version."),
) -> None:
    """Run programs that survive the death of everything that started them.

    \b
    Example:
      dsup start --request-id nightly-17 -- make report
      dsup attach 4f7k
    """
    settings(context, json, state_dir, socket)


def run(arguments: list[str]) -> int:
    """Run one command line.  Returns the exit code; never raises but for SystemExit of typer's own."""
    out.prepare_streams()
    shared = Settings(PROGRAM)
    try:
        return _invoke(arguments, shared)
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        out.close_quietly()
        return exit_codes.BROKEN_PIPE
    except Exception as error:  # noqa: BLE001  the guard: a person gets one line, never a traceback
        return _failed(error, shared, arguments)


def _invoke(arguments: list[str], shared: Settings) -> int:
    command = typer.main.get_command(_application())
    result = command.main(
        args=arguments or ["--help"], prog_name=called_name(), standalone_mode=False, obj=shared
    )
    return result if isinstance(result, int) else exit_codes.OK


def _failed(error: Exception, shared: Settings, arguments: list[str]) -> int:
    # A mistake in the words is found before the options are merged, so look at the words themselves.
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = shared.json or "--json" in words
    if isinstance(error, typer.Abort):
        return exit_codes.INTERRUPTED
    # typer has carried its own copy of click since 0.25; both keep these two names.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else called_name()
        errors.print_error(errors.usage(error.format_message(), command), as_json=as_json)
        return int(error.exit_code)
    return errors.report(error, as_json=as_json)
