"""Argument validation of the public calls: unknown keywords and values of the wrong type are rejected before any work.

The checks are derived from the annotations of each function, once, when it is first called. What an annotation cannot
express (that a number is positive, that data can be read as Arrow) is checked by the verb itself.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import (
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)

from conroi.errors import ConroiError, InvalidInputError, UnknownArgumentError

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=type)

SHOWN_CHARACTERS = 60
"""Longer values are cut in messages."""
NEAREST = 0.6
"""Minimum similarity of a known name to be suggested for an unknown one (see difflib)."""


class Problem(NamedTuple):
    """An invalid value."""

    where: str
    """Its position inside the argument, such as `['v']`."""
    value: object
    expected: str


Check = Callable[[object], Problem | None]
"""Returns what is wrong with a value; None if nothing is."""


def checked_call(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: validates the arguments of a public function, and names tables in its errors as users do."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            _checks_of(function).check(args, kwargs)
            return cast("Any", function)(*args, **kwargs)
        except ConroiError as error:
            named = getattr(args[0], "_name_for_errors", None) if args else None
            if named is not None:
                error.table = named(error.table)
            raise

    return cast("Callable[P, T]", call)


def checked_table_call(function: Callable[P, T]) -> Callable[P, T]:
    """The same for a function whose first argument is the address of a table."""
    checked = cast("Any", checked_call(function))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return checked(*args, **kwargs)
        except ConroiError as error:
            uri = args[0] if args else kwargs.get("uri")
            if error.table is None and isinstance(uri, str | os.PathLike):
                address = os.fspath(cast("str", uri))
                error.table = None if "@" in address else address  # it may hold a password
            raise

    return cast("Callable[P, T]", call)


def checked_calls(owner: C) -> C:
    """Class decorator: public methods validate their arguments."""
    for name, member in list(vars(owner).items()):
        if isinstance(member, types.FunctionType) and (not name.startswith("_") or name == "__getitem__"):
            setattr(owner, name, checked_call(member))
    return owner


class _Checks:
    """The checks of one function's arguments."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function.__name__
        self._positional: list[str] = []
        self._by_name: dict[str, _Argument] = {}
        names = _Names(inspect.unwrap(function).__globals__)
        for parameter in inspect.signature(function).parameters.values():
            wanted = names.read(parameter.annotation)
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:  # **how: Unpack[WriteOptions]
                options = _keys_of(get_args(wanted)[0])
                self._by_name |= {name: _Argument(name, type_, None) for name, type_ in options.items()}
                continue
            self._positional += [] if parameter.kind is inspect.Parameter.KEYWORD_ONLY else [parameter.name]
            self._by_name[parameter.name] = _Argument(parameter.name, wanted, parameter.default)

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """UnknownArgumentError for a keyword that the function does not have, InvalidInputError for a bad value."""
        for name, value in (*kwargs.items(), *zip(self._positional, args, strict=False)):
            argument = self._by_name.get(name)
            if argument is None:
                raise _unknown(self._function, name, self._by_name)
            if type(value) not in argument.accepted and argument.check is not None:
                argument.refuse(self._function, value)


class _Argument:
    """The check of one argument."""

    def __init__(self, name: str, wanted: Any, default: object) -> None:
        self.check = check_of(wanted)
        """None if any value is valid."""
        self.accepted: set[type] = set()
        """Classes of which every value is valid, as far as they were seen: their values are not checked again."""
        self._name = name
        self._wanted = wanted
        self._default = default

    def refuse(self, function: str, value: object) -> None:
        """InvalidInputError if the value is invalid; the default, or None for an option, means that none is given."""
        if value is self._default or self.check is None:
            return
        problem = self.check(value)
        if problem is not None:
            raise InvalidInputError(
                f"{function}() cannot take {self._name}{problem.where}={shortened(problem.value)}.",
                hint=_hint(problem),
            )
        if type(value) not in _DECIDED_BY_CONTENT and accepts_all_of(self._wanted, type(value)):
            self.accepted.add(type(value))


_DECIDED_BY_CONTENT = (str, int, float, list, tuple, dict)
"""Classes whose values are checked each time."""
_checks_of = functools.cache(_Checks)


def printable(text: object, longest: int = 500) -> str:
    """Text from the data, for a message: truncated, and as UTF-8."""
    shown = str(text)
    shown = shown if len(shown) <= longest else shown[: longest - 1] + "…"
    return shown.encode("utf-8", "backslashreplace").decode()


def shortened(value: object) -> str:
    """The value as it is shown in messages."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (whatever the value is, the message is about its place)
        text = f"<{type(value).__name__}>"
    return printable(text, SHOWN_CHARACTERS)


def _unknown(function: str, name: str, known: Iterable[str]) -> UnknownArgumentError:
    takes = sorted(each for each in known if each != "self")
    return UnknownArgumentError(
        f"{function}() has no argument {shortened(name)}.",
        hint=f"{nearest(name, takes)}It takes {', '.join(takes)}." if takes else "It takes no arguments.",
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the most similar name; empty if there is none."""
    import difflib

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=NEAREST)
    return f"Did you mean {found[0]}? " if found else ""


def _hint(problem: Problem) -> str:
    if isinstance(problem.value, str) and "a list" in problem.expected:
        return f"Write [{shortened(problem.value)}]."
    return f"Give {problem.expected}."


# ------------------------------------------------------------------------------- annotations


class _ByName:
    """Stands for a class that its module imports only for type checkers: values are matched by their class name."""


class _RecordStore(Protocol):
    """Identifies a record store."""

    def key_of(self, objects: Any) -> str: ...
    def put_if_absent(self, records: Any, expected: Any = None) -> None: ...


_BY_NAME: dict[str, type[_ByName]] = {
    name: type(name, (_ByName,), {}) for name in ("DuckDBPyConnection", "Lake", "SparkSession")
}
_ALIASES: dict[str, Any] = {
    "Callable": Callable,
    "CommitLock": Callable[..., Any],
    "Progress": Callable[..., Any],
    "Put": Literal["conditional", "rename"],
    "Remains": Literal["remove", "keep"],
    "Store": str | _RecordStore,
    "Verb": Callable[..., Any],
    "duckdb": types.SimpleNamespace(DuckDBPyConnection=_BY_NAME["DuckDBPyConnection"]),
}
"""What is meant by other names that modules import only for type checkers. One that is not here is not checked."""


class _Names(dict[str, Any]):
    """The names that the annotations of a module use."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, None) or _BY_NAME.get(name) or _ALIASES.get(name, Any)

    def read(self, annotation: Any) -> Any:
        """The type that an annotation says; Any for what cannot be said at run time."""
        if annotation is inspect.Parameter.empty:
            return Any
        if not isinstance(annotation, str):
            return annotation
        try:
            return eval(annotation, {"__builtins__": {}}, self)  # noqa: S307 (our own source)
        except (TypeError, AttributeError):
            return Any


def check_of(wanted: Any) -> Check | None:
    """The check for a type; None if anything goes."""
    if wanted is Any or wanted is object or isinstance(wanted, TypeVar | str):
        return None
    if wanted is None or wanted is type(None):
        return lambda value: None if value is None else Problem("", value, "None")
    if wanted in _SIMPLE:
        return _SIMPLE[wanted]
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return _any_of([check_of(part) for part in parts])
    if origin is Literal:
        return _one_of(parts)
    if is_typeddict(wanted):
        return _options_of(wanted)
    kind = wanted if origin is None else origin
    if not isinstance(kind, type):
        return None
    if issubclass(kind, Mapping) and parts:
        return _mapping_of(*(check_of(part) for part in parts))
    if issubclass(kind, Sequence) and parts and not issubclass(kind, str):
        return _sequence_of(check_of(parts[0]))
    return _instance_of(kind)


def accepts_all_of(wanted: Any, kind: type) -> bool:
    """Whether every value of a class is of this type, whatever it contains.

    >>> accepts_all_of(bool | str, bool), accepts_all_of(str, str), accepts_all_of(list[int], list)
    (True, False, False)
    """
    if get_origin(wanted) in (Union, types.UnionType):
        return any(accepts_all_of(part, kind) for part in get_args(wanted))
    if wanted is bool:
        return kind is bool
    if get_origin(wanted) is not None or not isinstance(wanted, type) or wanted in _SIMPLE:
        return False
    if is_typeddict(wanted) or issubclass(wanted, _ByName):
        return False
    if getattr(wanted, "_is_protocol", False):
        return not issubclass(kind, type) and all(hasattr(kind, method) for method in _methods_of(wanted))
    return issubclass(kind, wanted)


def _keys_of(options: Any) -> dict[str, Any]:
    """The keys of a TypedDict and the types of their values."""
    names = _Names(vars(sys.modules[options.__module__]))
    return {
        name: names.read(getattr(annotation, "__forward_arg__", annotation))
        for name, annotation in options.__annotations__.items()
    }


def _any_of(checks: Sequence[Check | None]) -> Check | None:
    known = [check for check in checks if check is not None]
    if len(known) < len(checks):
        return None

    def check(value: object) -> Problem | None:
        problems = [check(value) for check in known]
        found = [problem for problem in problems if problem is not None]
        if len(found) < len(problems):
            return None
        deeper = [problem for problem in found if problem.where or problem.expected in _ABOUT_VALUES]
        if deeper:
            return deeper[0]
        kinds = dict.fromkeys(problem.expected for problem in found if problem.expected != "None")
        return Problem("", value, " or ".join(kinds))

    return check


def _one_of(values: Sequence[object]) -> Check:
    shown = " or ".join(repr(value) for value in values)

    def check(value: object) -> Problem | None:
        is_one = isinstance(value, str | int | None) and value in values
        return None if is_one else Problem("", value, shown)

    return check


def _methods_of(protocol: type) -> list[str]:
    return [each for each in vars(protocol) if not each.startswith("_")]


def _instance_of(wanted: type) -> Check:
    methods = _methods_of(wanted)

    def check(value: object) -> Problem | None:
        if issubclass(wanted, _ByName):
            is_one = any(kind.__name__ == wanted.__name__ for kind in type(value).__mro__)
        elif getattr(wanted, "_is_protocol", False):
            is_one = not isinstance(value, type) and all(hasattr(value, method) for method in methods)
        else:
            is_one = isinstance(value, wanted)
        return None if is_one else Problem("", value, _SHOWN.get(wanted.__name__) or f"a {wanted.__name__}")

    return check


_SHOWN = {
    "Callable": "a function",
    "DuckDBPyConnection": "a connection, as duckdb.connect() gives it",
    "DataType": "a type of pyarrow, such as pa.int64()",
    "Environment": "an Environment",
    "Expression": "an expression of pyarrow",
    "LakeReader": "a Lake",
    "PathLike": "a path",
    "Reader": "a Table",
    "_RecordStore": "a store",
    "Transaction": "a transaction, as conroi.format.decode_transaction(data) reads it",
}
"""What classes are called in hints."""


def _mapping_of(key: Check | None, item: Check | None) -> Check:
    def check(value: object) -> Problem | None:
        if not isinstance(value, Mapping):
            return Problem("", value, "a mapping, such as a dict")
        for name, each in cast("Mapping[object, object]", value).items():
            problem = None if key is None else key(name)
            if problem is not None:
                return Problem(f"{{{shortened(name)}: …}}", value, f"keys that are {problem.expected}")
            problem = None if item is None else item(each)
            if problem is not None:
                return Problem(f"[{shortened(name)}]{problem.where}", problem.value, problem.expected)
        return None

    return check


def _options_of(options: Any) -> Check:
    """A mapping that may have only the keys of a TypedDict."""
    known = {name: check_of(wanted) for name, wanted in _keys_of(options).items()}

    def check(value: object) -> Problem | None:
        if not isinstance(value, Mapping):
            return Problem("", value, "a mapping, such as a dict")
        for name, each in cast("Mapping[object, object]", value).items():
            if name not in known:
                return Problem(f"[{shortened(name)}]", each, " or ".join(repr(known_name) for known_name in known))
            item = known[cast("str", name)]
            problem = None if item is None else item(each)
            if problem is not None:
                return Problem(f"[{shortened(name)}]{problem.where}", problem.value, problem.expected)
        return None

    return check


def _sequence_of(item: Check | None) -> Check:
    def check(value: object) -> Problem | None:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview):
            return Problem("", value, "a list")
        for number, each in enumerate(cast("Sequence[object]", value)) if item is not None else ():
            problem = item(each) if item is not None else None
            if problem is not None:
                return Problem(f"[{number}]{problem.where}", problem.value, problem.expected)
        return None

    return check


_UTF8 = "text without halves of surrogate pairs, which cannot be written as UTF-8"
_64_BITS = "a number of at most 64 bits"
_ABOUT_VALUES = (_UTF8, _64_BITS)
"""What is said of a value whose type is right."""


def _text(value: object) -> Problem | None:
    if not isinstance(value, str):
        return Problem("", value, "text")
    if value.isascii():
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return Problem("", value, _UTF8)
    return None


def _whole_number(value: object) -> Problem | None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        return Problem("", value, "a whole number")
    return None if -(1 << 63) <= int(value) < 1 << 64 else Problem("", value, _64_BITS)  # detached versions are large


def _number(value: object) -> Problem | None:
    is_number = not isinstance(value, bool) and isinstance(value, Real) and float(value) == float(value)
    return None if is_number else Problem("", value, "a number")


def _truth(value: object) -> Problem | None:
    return None if isinstance(value, bool) else Problem("", value, "True or False")


_SIMPLE: dict[Any, Check] = {str: _text, int: _whole_number, float: _number, bool: _truth}
