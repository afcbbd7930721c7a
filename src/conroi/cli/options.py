"""Arguments and options that several commands have, their completion, and how a function becomes a command."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

from conroi.cli.failures import UsageProblem, exit_code, tell
from conroi.cli.output import Output
from conroi.cli.session import DEFAULT_LAKE, Session
from conroi.errors import ConroiError

MOST_VERSIONS = 20


def addresses(incomplete: str) -> list[str]:
    """Lakes, tables and versions."""
    with suppress(ConroiError, OSError):  # a shell is no place for errors
        return list(_addresses(incomplete))
    return []


lakes = addresses
tables = addresses


def _addresses(incomplete: str) -> Iterator[str]:
    session = Session(Output(as_json=False))
    default = os.environ.get(DEFAULT_LAKE)
    head, slash, last = incomplete.rpartition("/")
    place, at, version = last.partition("@")
    if at:
        yield from _versions(session, head + slash + place, version)
    elif slash and "://" not in head and session.is_lake(head):
        yield from (f"{head}/{name}" for name in session.connect(head).tables() if name.startswith(last))
        return  # the other folders of a lake are its own
    elif not slash and default:
        yield from (name for name in session.connect(default).tables() if name.startswith(last))
    if not at and "://" not in head:
        yield from _folders(head + slash, last)


def _versions(session: Session, place: str, begun: str) -> Iterator[str]:
    target = session.target(place)
    of = target.lake if target.name is None else target.table
    numbers = [str(number) for number in range(of.version, max(0, of.version - MOST_VERSIONS), -1)]
    yield from (f"{place}@{each}" for each in (*(tag.name for tag in of.tags), *numbers) if each.startswith(begun))


def _folders(head: str, begun: str) -> Iterator[str]:
    if not os.path.isdir(head or "."):
        return
    with os.scandir(head or ".") as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            is_own = entry.name.startswith((".", "__")) or entry.name.endswith(".lance")
            if entry.name.startswith(begun) and not is_own and entry.is_dir():
                yield f"{head}{entry.name}"


STDIN = "-"
"""The name of standard input."""

Lake = Annotated[
    str | None, typer.Argument(metavar="[LAKE]", help="The lake; by default CONROI_LAKE.", autocompletion=lakes)
]
LakeOrTable = Annotated[
    str | None,
    typer.Argument(
        metavar="[LAKE[/TABLE]]", help="A lake or one of its tables, of any version.", autocompletion=addresses
    ),
]
OneTable = Annotated[str, typer.Argument(metavar="LAKE/TABLE", help="A table of a lake.", autocompletion=tables)]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="At most so many.")]
Message = Annotated[str | None, typer.Option("--message", "-m", metavar="TEXT", help="What the history says about it.")]
Author = Annotated[
    str | None, typer.Option(envvar="CONROI_AUTHOR", metavar="NAME", help="Who the history says did it.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without this it is only said what would be done.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, as without --yes.")]


def checked_yes(*, yes: bool, dry_run: bool) -> None:
    """UsageProblem for a command that is told to do it and not to."""
    if yes and dry_run:
        raise UsageProblem("--yes does it and --dry-run does not.", hint="Give one of them.")


def so_far(advance: Callable[[int], None]) -> Callable[[int], None]:
    """A callback for totals, from one for steps."""
    done = 0

    def told(count: int) -> None:
        nonlocal done
        advance(count - done)
        done = count

    return told


F = TypeVar("F", bound=Callable[..., None])

COMMON: dict[str, tuple[Any, Any]] = {
    "as_json": (Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")], False),
    "store": (
        Annotated[
            str | None,
            typer.Option(
                envvar="CONROI_STORE", metavar="ADDRESS", help="The database with the lake's history, if it has one."
            ),
        ],
        None,
    ),
    "locks": (
        Annotated[
            str | None, typer.Option(envvar="CONROI_LOCKS", metavar="ADDRESS", help="The database with insert locks.")
        ],
        None,
    ),
    "storage_option": (
        Annotated[
            list[str] | None,
            typer.Option(
                envvar="CONROI_STORAGE_OPTIONS", metavar="KEY=VALUE", help="For the object store; repeatable."
            ),
        ],
        None,
    ),
    "allow_base": (
        Annotated[
            list[str] | None,
            typer.Option(
                envvar="CONROI_ALLOW_BASES",
                metavar="PATH",
                help="A folder outside the lake that tables may refer to; repeatable.",
            ),
        ],
        None,
    ),
    "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="No remarks and no progress on stderr.")], False),
    "debug": (Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")], False),
}


class PlainCommand(TyperCommand):
    """A command whose help calls its words what people call them, without their Python types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return ["[OPTIONS]", *(str(word.metavar) for word in self._words())]

    def _words(self) -> list[Any]:
        return [each for each in self.params if each.param_type_name == "argument"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        words = [(str(each.metavar), str(getattr(each, "help", "") or "")) for each in self._words()]
        explained = [(metavar, text) for metavar, text in words if text]
        if explained:
            with formatter.section("Arguments"):
                formatter.write_dl(explained)
        records = [each.get_help_record(ctx) for each in self.get_params(ctx) if each.param_type_name == "option"]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])


def new_app(help: str) -> typer.Typer:
    """A group of commands; its help is plain text, which starts faster than a drawn one."""
    return typer.Typer(
        help=help, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )


def command(app: typer.Typer, name: str, *, examples: Sequence[str], section: str = "") -> Callable[[F], F]:
    """Register `function(session, …)` as a command."""

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        own = list(inspect.signature(function).parameters.values())[1:]
        parameters = [each.replace(annotation=hints[each.name]) for each in own]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters += [
            inspect.Parameter(each, kind, default=default, annotation=annotation)
            for each, (annotation, default) in COMMON.items()
        ]

        def call(**given: Any) -> None:
            _guarded(function, given)

        call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        call.__name__, call.__doc__ = function.__name__, function.__doc__
        shown = "\n".join(f"  {line}" for line in examples)
        app.command(name, cls=PlainCommand, epilog=f"\b\nExamples:\n{shown}", rich_help_panel=section or None)(call)
        return function

    return register


def _guarded(function: Callable[..., None], given: dict[str, Any]) -> None:
    as_json, debug = given.pop("as_json"), given.pop("debug")
    store, locks, options = given.pop("store"), given.pop("locks"), given.pop("storage_option")
    bases, is_quiet = given.pop("allow_base"), given.pop("quiet")
    try:
        output = Output(as_json=as_json, is_quiet=is_quiet)
        session = Session(output, store, locks, _pairs(options or ()), debug, tuple(bases or ()))
        function(session, **given)
        sys.stdout.flush()
    except typer.Exit:
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the last one to hear of it)
        tell(error, as_json=as_json, debug=debug)
        _give_up_on_stdout(error)
        raise typer.Exit(exit_code(error)) from None


def _give_up_on_stdout(error: BaseException) -> None:
    """Python flushes stdout when it ends, and would complain a second time."""
    if isinstance(error, BrokenPipeError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _pairs(options: Sequence[str]) -> dict[str, str]:
    pairs = [option.partition("=") for option in options]
    if any(not key or not equals for key, equals, _ in pairs):
        raise UsageProblem("A storage option is written KEY=VALUE.")
    return {key: value for key, _, value in pairs}
