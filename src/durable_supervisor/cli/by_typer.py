"""The same verbs as commands of typer: for help, for completion, and to say what is wrong with a line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from . import verbs
from .main import called_name
from .options.declared import Argument, Completion, Parameter, parameters
from .options.shared import Call, Settings
from .output import errors, exit_codes, streams

# What the same is called in other tools.
_ELSEWHERE = {
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
_COMMON = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def invoke(arguments: list[str], shared: Settings) -> int:
    """Run one command line by typer.  Raises what it finds wrong, as its own exceptions."""
    command = typer.main.get_command(_application())
    result = command.main(
        args=arguments or ["--help"], prog_name=called_name(), standalone_mode=False, obj=shared
    )
    return result if isinstance(result, int) else exit_codes.OK


def judge(verb: str, words: list[str]) -> dict[str, Any]:
    """The values that a verb would get.  Raises INVALID_REQUEST with what is wrong."""
    name = called_name()
    try:
        context = command(verb).make_context(f"{name} {verb}", list(words), obj=Settings(name))
    except typer.Exit:
        raise errors.usage("--help is not for a service to do", f"{name} {verb}") from None
    except Exception as error:
        found = mistake(error)
        if found is None:
            raise
        raise errors.usage(found[0], found[1]) from error
    values: dict[str, Any] = context.params
    return values


def mistake(error: Exception) -> tuple[str, str, int] | None:
    """Message, command and exit code of a mistake that typer has found; None: it is something else."""
    # typer has carried its own copy of click since 0.25; both keep these two names.
    if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else called_name()
    return error.format_message(), command, int(error.exit_code)


def is_abort(error: Exception) -> bool:
    """Ctrl-C, as typer tells it."""
    return isinstance(error, typer.Abort)


def command(verb: str) -> Any:
    """One verb, ready to be called or to judge its options."""
    single = _typer()
    context = {**_COMMON, "allow_interspersed_args": verbs.interspersed(verb)}
    single.command(verb, cls=_Verb, epilog=exit_codes.HELP, context_settings=context)(
        _callback(verbs.load(verb))
    )
    return typer.main.get_command(single)


def _application() -> typer.Typer:
    application = _typer(cls=_Verbs, add_completion=True, context_settings=_COMMON, epilog=exit_codes.HELP)
    application.callback()(_callback(verbs.shared))
    return application


def _typer(**options: Any) -> typer.Typer:
    # Plain help: rich's would read `[NAME]` as markup, and would have to be imported.
    return typer.Typer(
        add_completion=options.pop("add_completion", False),
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        **options,
    )


# The declarations, as typer wants them.


def _callback(function: Callable[..., Any]) -> Callable[..., Any]:
    """The verb with a signature of typer's."""

    def call(context: typer.Context, **values: Any) -> Any:
        settings = context.find_object(Settings)
        if settings is None:
            raise RuntimeError("invoke() puts the settings into the context")
        return function(Call(settings, values), **values)

    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    signature = inspect.Signature([first, *(_parameter(one) for one in parameters(function))])
    setattr(call, "__signature__", signature)  # noqa: B010
    call.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    call.__doc__ = function.__doc__
    return call


def _parameter(one: Parameter) -> inspect.Parameter:
    declared = one.declared
    words: dict[str, Any] = {"metavar": declared.metavar, "help": declared.help}
    if declared.complete is not None:
        words["autocompletion"] = _completion(declared.complete)
    info = (
        typer.Argument(**words) if isinstance(declared, Argument) else typer.Option(*declared.flags, **words)
    )
    default = inspect.Parameter.empty if one.required else one.default
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[one.kind, info]
    )


def _completion(complete: Completion) -> Callable[..., Any]:
    def words(context: typer.Context, args: list[str], incomplete: str) -> list[Any]:
        found = context.find_object(Settings)
        state_dir = context.params.get("state_dir") or (found.state_dir if found else None)
        return list(complete(state_dir, incomplete))

    return words


# What is ours beside typer's way.


class _AsGiven:
    """Hands a word of the command line on as it is.

    typer builds a pydantic adapter to turn a str into a str; importing pydantic
    takes long, and our own parsers judge the words.
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


class _Verb(TyperCommand):
    """One verb."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            if parameter.param_type_name == "argument" and parameter.metavar:
                _named_plainly(parameter)

    def get_params(self, ctx: Any) -> list[Any]:
        return _words_as_given(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "format_message") and getattr(error, "ctx", None) is None:
                setattr(error, "ctx", ctx)  # noqa: B010  else its hint knows no verb: "see 'dsup --help'"
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # here, since typer would leave with 1
            streams.close_quietly()
            return exit_codes.BROKEN_PIPE


class _Verbs(TyperGroup):
    """A group whose commands are built at their first use."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _words_as_given(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(verbs.VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in verbs.VERBS:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = command(cmd_name)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in verbs.VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            other = _ELSEWHERE.get(args[0])
            near = [other] if other is not None else get_close_matches(args[0], verbs.VERBS, n=1)
            meant = f", did you mean '{near[0]}'?" if near else ""
            raise errors.usage(f"no such verb: {args[0]}{meant}", called_name())
        return super().resolve_command(ctx, args)
