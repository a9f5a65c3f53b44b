"""Small changes of a program's text, each of which a test should notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

_Spot: TypeAlias = ast.expr | ast.stmt

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
}
_EMPTY: Final = frozenset({"None", "False", "''", "()", "[]", "{}"})
"""What is as good as None where somebody asks for its truth."""
_TRUE: Final = ast.Constant(True)
_FALSE: Final = ast.Constant(False)


@dataclass(frozen=True)
class Change:
    """One change.

    Attributes:
        path: the file, from the root of the checkout.
        line: where the change begins, from 1.
        start, stop: the characters that are replaced.
        old, new: what stood there, and what stands there then.
        text: the first changed line as it was, without the blanks around it.
        statement: the first and the last line of the statement, without those within it. What stands on several lines
            may run as one: constants do.
    """

    path: str
    line: int
    start: int
    stop: int
    old: str
    new: str
    text: str
    statement: tuple[int, int] = (0, 0)

    @property
    def lines(self) -> int:
        """The lines of the statement as bits: line n is bit n."""
        first, last = self.statement if any(self.statement) else (self.line, self.line)
        return (1 << last + 1) - (1 << first)

    def applied(self, source: str) -> str:
        """The file's text with the change."""
        return source[: self.start] + self.new + source[self.stop :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: `{self.old}` → `{self.new}` in `{self.text}`"


def changes_of(path: str, source: str) -> list[Change]:
    """Every change of the file, in the order of the text."""
    found: dict[tuple[int, str], Change] = {}
    finder = _Finder(source)
    statements = _statements_of(ast.parse(source))
    for node, new in finder.all():
        start, stop = finder.place(node)
        old = source[start:stop]
        text = source.splitlines()[node.lineno - 1].strip()
        found.setdefault((start, new), Change(path, node.lineno, start, stop, old, new, text, statements[node.lineno]))
    return sorted(found.values(), key=lambda change: (change.start, change.stop, change.new))


def _statements_of(tree: ast.Module) -> dict[int, tuple[int, int]]:
    """Line → the innermost statement that it is part of, and not only of what stands within it."""
    found: dict[int, tuple[int, int]] = {}
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, (ast.stmt, ast.excepthandler, ast.match_case)):
            first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
            body = getattr(node, "body", None)
            last = max(first, body[0].lineno - 1) if body else getattr(node, "end_lineno", first)
            found.update(dict.fromkeys(range(first, last + 1), (first, last)))
    return found


class _Finder:
    def __init__(self, source: str) -> None:
        self._tree = ast.parse(source)
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._bytes = [line.encode() for line in source.splitlines(keepends=True)]

    def place(self, node: _Spot) -> tuple[int, int]:
        """Where a node stands, in characters."""
        stop_line, stop = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._at(node.lineno, node.col_offset), self._at(stop_line, stop)

    def _at(self, line: int, column: int) -> int:
        return self._lines[line - 1] + len(self._bytes[line - 1][:column].decode())

    def all(self) -> Iterator[tuple[_Spot, str]]:
        """What may be replaced, and by what."""
        for node in _evaluated(self._tree):
            for new in _variants(node):
                text = ast.unparse(new)
                yield node, f"({text})" if isinstance(new, (ast.Compare, ast.BoolOp, ast.BinOp)) else text


def _evaluated(node: ast.AST) -> Iterator[_Spot]:
    """The statements and expressions that run: no annotations, no documentation, no parts of formatted strings."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"} or _declares(node, name):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _says_nothing(child):
                continue
            if isinstance(child, (ast.expr, ast.stmt)):
                yield child
            if not isinstance(child, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
                yield from _evaluated(child)


def _declares(node: ast.AST, name: str) -> bool:
    """Whether a value is for type checkers only."""
    if isinstance(node, ast.AnnAssign) and name == "value":
        return "TypeAlias" in ast.unparse(node.annotation)
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return isinstance(target, ast.Name) and target.id == "__all__"


def _says_nothing(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in {"cast", "TypeVar"}
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _variants(node: _Spot) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    if isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            swapped = [*node.ops[:at], _COMPARISONS[type(op)](), *node.ops[at + 1 :]]
            yield ast.Compare(node.left, swapped, node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, (ast.Name, ast.Attribute, ast.Call)) and getattr(node, "truth", False):
        yield from (_TRUE, _FALSE)
    elif isinstance(node, ast.IfExp):
        node.test.truth = True  # type: ignore[attr-defined]  # as in `_statements`
    elif isinstance(node, ast.stmt):
        yield from _statements(node)


def _constants(value: object) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield _FALSE if value else _TRUE
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, str):
        yield ast.Constant("" if value else "x")


def _statements(node: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(node, (ast.If, ast.While)):
        node.test.truth = True  # type: ignore[attr-defined]  # a mark for `_variants`, which comes to it next
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) not in _EMPTY:
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield ast.Pass()
