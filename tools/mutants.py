"""Mutants of a Python module: small changes of its syntax tree, each of which a good test suite notices.

Not mutated: docstrings, annotations, decorators, imports, assertions (pyright needs them), `__repr__`, log calls, the
message and hint of an error, and texts, which are strings with white space: messages, titles of rules, SQL.
"""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

TABLES_OF_TEXTS = {"_DEEDS"}
"""Constants that have nothing but parts of messages."""
_NOT_MUTATED = (ast.Assert, ast.Import, ast.ImportFrom)
_FIELDS_LEFT_OUT = {
    "annotation",
    "returns",
    "decorator_list",
    "bases",
    "type_comment",
    "type_params",
    "format_spec",
    "ctx",
}
_ERROR_NAME = re.compile(
    r"(Error|Conflict|Exception|Unknown|Contention|Mismatch|Expired|Unavailable|Interrupted|Required|Timeout|Warning)$"
)
_TYPE_NAME = re.compile(r"(\w+\.)*[A-Z]\w*$|None$")
_UNSWAPPED = {"min", "max", "isinstance", "issubclass", "cast", "range", "getattr", "hasattr", "setattr"}

_COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BOUNDARIES = ast.Lt | ast.LtE | ast.Gt | ast.GtE
_ARITHMETIC: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change of one module. It is found again by its id, also after changes elsewhere in the module."""

    path: str
    """The module, relative to the folder of the sources."""
    where: str
    """The function or class, by its qualified name; "" for the module."""
    kind: str
    before: str
    after: str
    number: int
    """Number among the mutants of `where` that look the same."""
    lines: tuple[int, ...] = field(compare=False)
    """Lines that are executed if the mutated code is."""
    names: tuple[str, ...] = field(compare=False)
    """For code that is executed at import: the names that it defines."""
    is_import_time: bool = field(compare=False)

    @property
    def id(self) -> str:
        return f"{self.path}:{self.where or '<module>'}: {self.kind}: {self.before} → {self.after} #{self.number}"


@dataclass(frozen=True)
class _Context:
    """Where the walk through the tree is."""

    where: tuple[str, ...] = ()
    is_import_time: bool = True
    lines: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    returns_bool: bool = False
    is_default: bool = False


@dataclass(frozen=True)
class _Change:
    """A mutant, and how to make it: the place of a node in its parent, and the new node."""

    mutant: Mutant
    parent: ast.AST
    name: str
    index: int | None
    old: ast.AST
    new: ast.AST

    def make(self) -> None:
        if not any(self.new is inner for inner in ast.walk(self.old)):
            ast.copy_location(self.new, self.old)
        if self.index is None:
            setattr(self.parent, self.name, self.new)
        else:
            getattr(self.parent, self.name)[self.index] = self.new


def mutants(source: str, path: str) -> list[Mutant]:
    """All mutants of a module, in the order of its source."""
    return [change.mutant for change in _changes(ast.parse(source), path)]


def mutated(source: str, mutant: Mutant) -> ast.Module | None:
    """The module with this change; None if the code that it changes is not there any more."""
    tree = ast.parse(source)
    for change in _changes(tree, mutant.path):
        if change.mutant == mutant:
            change.make()
            return ast.fix_missing_locations(tree)
    return None


def sample(by_module: Mapping[str, Sequence[Mutant]], size: int, seed: int) -> list[Mutant]:
    """So many of the mutants; each module has a part of the sample that is as large as its part of all mutants."""
    total = sum(map(len, by_module.values()))
    exact = {path: len(found) * min(size, total) / max(total, 1) for path, found in by_module.items()}
    shares = {path: int(share) for path, share in exact.items()}
    rest = min(size, total) - sum(shares.values())
    for path in sorted(exact, key=lambda path: (shares[path] - exact[path], path))[:rest]:
        shares[path] += 1
    chosen: list[Mutant] = []
    for path in sorted(by_module):
        found = by_module[path]
        numbers = random.Random(f"{seed} {path}").sample(range(len(found)), shares[path])
        chosen.extend(found[number] for number in sorted(numbers))
    return chosen


def _changes(tree: ast.Module, path: str) -> Iterator[_Change]:
    seen = Counter[tuple[str, str, str, str]]()
    for context, parent, name, index, old, kind, new in _walk(tree, _Context()):
        where, before, after = ".".join(context.where), _short(old), _short(new)
        key = where, kind, before, after
        seen[key] += 1
        mutant = Mutant(
            path, where, kind, before, after, seen[key], _lines(old, context), context.names, context.is_import_time
        )
        yield _Change(mutant, parent, name, index, old, new)


_Found = tuple[_Context, ast.AST, str, int | None, ast.AST, str, ast.AST]


def _walk(node: ast.AST, context: _Context) -> Iterator[_Found]:
    for name, value in ast.iter_fields(node):
        if name in _FIELDS_LEFT_OUT or (isinstance(node, ast.Call) and name == "args" and _is_error(node)):
            continue
        places = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in places:
            if isinstance(child, ast.AST) and not _is_left_out(child, node):
                inner = _inner(child, node, name, context)
                for kind, new in _replacements(child, inner):
                    yield inner, node, name, index, child, kind, new
                yield from _walk(child, inner)


def _inner(child: ast.AST, parent: ast.AST, name: str, context: _Context) -> _Context:
    """The context of a child. Defaults of parameters belong to the place where the function is defined."""
    if isinstance(parent, ast.FunctionDef | ast.Lambda) and name == "body":
        context = replace(context, is_import_time=False, is_default=False)
    if isinstance(child, ast.arguments):
        return replace(context, is_default=True)
    if not isinstance(child, ast.stmt):
        return context
    context = replace(context, lines=_header(child), is_default=False)
    if isinstance(child, ast.FunctionDef | ast.ClassDef):
        returns_bool = isinstance(child, ast.FunctionDef) and _is_named(child.returns, "bool")
        context = replace(context, where=(*context.where, child.name), returns_bool=returns_bool)
    if not context.is_import_time:
        return context
    is_field = isinstance(parent, ast.ClassDef) and isinstance(child, ast.AnnAssign)
    return replace(context, names=_defined(child) or context.names, is_default=is_field)


def _defined(statement: ast.stmt) -> tuple[str, ...]:
    """The names that a statement gives to something."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return (statement.name,)
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return tuple(target.id for target in targets if isinstance(target, ast.Name))


def _is_named(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _header(statement: ast.stmt) -> tuple[int, ...]:
    """The lines of a statement without those of its body."""
    body = getattr(statement, "body", None)
    end = body[0].lineno - 1 if isinstance(body, list) and body else (statement.end_lineno or statement.lineno)
    return tuple(range(statement.lineno, max(end, statement.lineno) + 1))


def _lines(node: ast.AST, context: _Context) -> tuple[int, ...]:
    """Lines of the node itself; of its statement if it has none of its own."""
    if isinstance(node, ast.ExceptHandler):
        return tuple(range(node.body[0].lineno, (node.body[-1].end_lineno or node.lineno) + 1))
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    if isinstance(node, ast.If | ast.While) or not first:
        return context.lines
    return tuple(range(first, last + 1))


# ------------------------------------------------------------------------------- what is left out
def _is_left_out(node: ast.AST, parent: ast.AST) -> bool:
    if isinstance(node, _NOT_MUTATED):
        return True
    if isinstance(node, ast.FunctionDef):
        marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
        return node.name in ("__repr__", "__str__") or "overload" in marks
    if isinstance(node, ast.If):
        return ast.unparse(node.test).endswith("TYPE_CHECKING")
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_log_call(node.value)
    if isinstance(node, ast.Raise):
        return _called(node.exc) in ("AssertionError", "NotImplementedError")
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        is_alias = isinstance(node, ast.AnnAssign) and _is_named(node.annotation, "TypeAlias")
        return is_alias or any(ast.unparse(target) in {*TABLES_OF_TEXTS, "__all__", "__slots__"} for target in targets)
    if isinstance(node, ast.keyword):
        is_text = isinstance(parent, ast.Call) and _is_error(parent) and node.arg in ("hint", "message")
        return is_text or node.arg == "repr"
    if isinstance(node, ast.Call):
        return _is_log_call(node) or _called(node) in ("TypeVar", "ParamSpec", "getLogger")
    if isinstance(node, ast.Subscript):
        return _called(node.value) == "Literal"
    return _is_text(node)


def _is_text(node: ast.AST) -> bool:
    """Whether it is a string for people."""
    if isinstance(node, ast.JoinedStr):
        return any(_is_text(value) for value in node.values)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(re.search(r"\s", node.value))


def _has_text(node: ast.AST) -> bool:
    return any(_is_text(inner) for inner in ast.walk(node))


def _called(node: ast.AST | None) -> str:
    """The last name of what is called or named; "" if it has none."""
    called = node.func if isinstance(node, ast.Call) else node
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def _is_error(call: ast.Call) -> bool:
    return bool(_ERROR_NAME.search(_called(call))) and _called(call)[:1].isupper()


def _is_log_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and _called(node.func.value) in ("_log", "log", "logging", "logger", "warnings")
    )


# ------------------------------------------------------------------------------------- changes
def _replacements(node: ast.AST, context: _Context) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare():
            yield from _other_comparisons(node)
        case ast.BoolOp(op=ast.And()):
            yield "boolean", ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp():
            yield "boolean", ast.BoolOp(ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield "not removed", node.operand
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "arithmetic", operand
        case ast.BinOp() if not _has_text(node):
            yield from _other_operation(node)
        case ast.Constant():
            yield from _other_constant(node, "default" if context.is_default else "constant")
        case ast.IfExp() if not _is_negated_elsewhere(node.test):
            yield "condition", ast.IfExp(_negated(node.test), node.body, node.orelse)
        case ast.comprehension():
            for number, test in enumerate(node.ifs):
                if not _is_negated_elsewhere(test):
                    ifs = [*node.ifs[:number], _negated(test), *node.ifs[number + 1 :]]
                    yield "condition", ast.comprehension(node.target, node.iter, ifs, node.is_async)
        case ast.Call():
            yield from _other_arguments(node)
        case ast.Slice():
            yield from _other_bounds(node)
        case ast.ExceptHandler() if not isinstance(node.body[0], ast.Raise) or node.body[0].exc is not None:
            yield "handler removed", ast.ExceptHandler(node.type, node.name, [_placed(ast.Raise(), node.body[0])])
        case ast.stmt():
            yield from _other_statement(node, context)
        case _:
            return


def _other_statement(node: ast.stmt, context: _Context) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Return(value=ast.expr() as value) if not _has_text(value) and not _is_none(value):
            if context.returns_bool and not _is_negated_elsewhere(value) and not isinstance(value, ast.Constant):
                yield "return", ast.Return(_negated(value))
            elif not context.returns_bool:
                yield "return", ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()):
            yield "call removed", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield "statement removed", ast.Pass()
        case ast.AnnAssign(target=ast.Attribute(), value=ast.expr()):
            yield "statement removed", ast.Pass()
        case ast.AugAssign():
            yield "statement removed", ast.Pass()
            if type(node.op) in _ARITHMETIC and not _has_text(node):
                yield "arithmetic", ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value)
        case ast.Raise():
            yield "raise removed", ast.Pass()
        case ast.Break():
            yield "loop", ast.Continue()
        case ast.Continue():
            yield "loop", ast.Break()
        case ast.If() if not _is_negated_elsewhere(node.test):
            yield "condition", ast.If(_negated(node.test), node.body, node.orelse)
        case ast.While() if not _is_negated_elsewhere(node.test) and not isinstance(node.test, ast.Constant):
            yield "condition", ast.While(_negated(node.test), node.body, node.orelse)
        case _:
            return


def _other_comparisons(node: ast.Compare) -> Iterator[tuple[str, ast.AST]]:
    for number, operator in enumerate(node.ops):
        ops = [*node.ops[:number], _COMPARISONS[type(operator)](), *node.ops[number + 1 :]]
        yield "comparison", ast.Compare(node.left, ops, node.comparators)


def _other_operation(node: ast.BinOp) -> Iterator[tuple[str, ast.AST]]:
    is_union = isinstance(node.op, ast.BitOr) and _is_type(node.right)
    if type(node.op) in _ARITHMETIC and not is_union:
        yield "arithmetic", ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)


def _is_type(node: ast.AST) -> bool:
    text = ast.unparse(node)
    return bool(_TYPE_NAME.match(text)) and (len(text) == 1 or not text.isupper())


def _other_constant(node: ast.Constant, kind: str) -> Iterator[tuple[str, ast.AST]]:
    value = node.value
    if isinstance(value, bool):
        yield kind, ast.Constant(not value)
    elif isinstance(value, int | float):
        yield kind, ast.Constant(value + 1)
    elif isinstance(value, str):
        yield kind, ast.Constant(f"XX{value}XX")
    elif isinstance(value, bytes):
        yield kind, ast.Constant(b"XX" + value)


def _other_arguments(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    if len(node.args) < 2 or _is_error(node):
        return
    first, second, *others = node.args
    if _called(node) == "isinstance":  # one of the types is forgotten
        types = _alternatives(second)
        for number in range(len(types) if len(types) > 1 else 0):
            union = " | ".join(ast.unparse(other) for other in (*types[:number], *types[number + 1 :]))
            yield "type", ast.Call(node.func, [first, ast.parse(union, mode="eval").body], [])
    if isinstance(first, ast.Starred) or isinstance(second, ast.Starred) or ast.dump(first) == ast.dump(second):
        return
    if _called(node) not in _UNSWAPPED and not _has_text(first) and not _has_text(second):
        yield "arguments swapped", ast.Call(node.func, [second, first, *others], node.keywords)


def _alternatives(node: ast.expr) -> list[ast.expr]:
    """The types of a union."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_alternatives(node.left), *_alternatives(node.right)]
    return [node]


def _other_bounds(node: ast.Slice) -> Iterator[tuple[str, ast.AST]]:
    """Bounds that are constants are mutated as such."""
    if node.lower is not None and not isinstance(node.lower, ast.Constant):
        yield "slice", ast.Slice(_one_more(node.lower), node.upper, node.step)
    if node.upper is not None and not isinstance(node.upper, ast.Constant):
        yield "slice", ast.Slice(node.lower, _one_more(node.upper), node.step)


def _one_more(node: ast.expr) -> ast.expr:
    return ast.BinOp(node, ast.Add(), ast.Constant(1))


def _negated(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def _is_negated_elsewhere(node: ast.expr) -> bool:
    """Whether another change of it is its negation already: `==` becomes `!=`, `not` is removed."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return not isinstance(node.ops[0], _BOUNDARIES)
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _placed(new: ast.stmt, old: ast.AST) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(new, old))


def _short(node: ast.AST) -> str:
    """The code in one line, without bodies."""
    if isinstance(node, ast.Slice):
        return ast.unparse(ast.Subscript(ast.Name("_"), node))
    if isinstance(node, ast.ExceptHandler):
        return " ".join(ast.unparse(node).split())[:120]
    text = ast.unparse(node).splitlines()
    return text[0][:120].strip() if text else ""


def used_names(sources: Mapping[str, str]) -> dict[str, dict[str, set[int]]]:
    """By name, the lines that read it, as a variable, attribute or keyword, by module."""
    found: dict[str, dict[str, set[int]]] = {}
    for path, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                    lines = found.setdefault(name, {}).setdefault(path, set())
                    lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                case _:
                    continue
    return found
