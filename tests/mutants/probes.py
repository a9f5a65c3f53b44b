"""Marks the places of changes in a program's text, so that the marks tell which tests come by: all places in one run.

A mark is a call of `_mutants_seen`, which `tests/mutants/seen.py` puts among the builtins. It stands where the change
would: around the expression, or before the statement. What runs while a module is imported says nothing about a test;
its marks are in the functions of the module, and in those that name what is defined.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from tests.mutants.changes import Change

_NAME: Final = "_mutants_seen"
_IMPORTED: Final = (
    f'\nexec("try:\\n from builtins import {_NAME}\\nexcept ImportError:\\n def {_NAME}(place): pass")\n'
)
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def marked(sources: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """The texts of the files that get marks. The mark of a change is its number in the sequence.

    Args:
        sources: path of each module of the program → its text.
    """
    trees = {path: _Text(text) for path, text in sources.items()}
    for number, change in enumerate(changes):
        text = trees[change.path]
        name = text.defined_by(change)
        if name is None:
            text.mark(change, number)
            continue
        text.mark_functions(number)
        for path, other in trees.items():
            if path != change.path and name in sources[path]:
                other.mark_users(name, number)
    return {path: text.written() for path, text in trees.items() if text.has_marks}


class _Text:
    """One file, and what has to be put where: of what begins at one place the longest first."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tree = ast.parse(source)
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._bytes = [line.encode() for line in source.splitlines(keepends=True)]
        self._opened: list[tuple[int, int, str]] = []
        self._closed: list[tuple[int, int, str]] = []

    @property
    def has_marks(self) -> bool:
        return bool(self._opened)

    def defined_by(self, change: Change) -> str | None:
        """The name that a statement of the module defines, if the change runs while it is imported."""
        for node in self._tree.body:
            start, stop = self._place(node)
            if start <= change.start < stop:
                return None if self._is_in_function(node, change) else _defined(node)
        return None

    def _is_in_function(self, top: ast.stmt, change: Change) -> bool:
        for node in ast.walk(top):
            if isinstance(node, _FUNCTIONS):
                body = node.body if isinstance(node.body, list) else [node.body]
                if self._place(body[0])[0] <= change.start < self._place(body[-1])[1]:
                    return True
        return False

    def mark(self, change: Change, number: int) -> None:
        """A mark where the change is; in a pattern: around what is matched."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Match) and any(self._holds(case.pattern, change) for case in node.cases):
                return self._around(*self._place(node.subject), number)
        if change.new in {"pass", "continue", "break"} or change.old.startswith("return "):
            self._opened.append((change.start, -change.stop, f"{_NAME}({number}); "))
            return None
        return self._around(change.start, change.stop, number)

    def _holds(self, node: ast.pattern, change: Change) -> bool:
        start, stop = self._place(node)
        return start <= change.start and change.stop <= stop

    def _around(self, start: int, stop: int, number: int) -> None:
        self._opened.append((start, -stop, f"({_NAME}({number})or("))
        self._closed.append((stop, -start, "))"))

    def mark_functions(self, number: int) -> None:
        """A mark in every function."""
        for node in ast.walk(self._tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._enter(node, number)

    def mark_users(self, name: str, number: int) -> None:
        """A mark in every function that names this."""
        for node in ast.walk(self._tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and name in _names(node):
                self._enter(node, number)

    def _enter(self, node: _Function, number: int) -> None:
        first = node.body[1] if _is_text(node.body[0]) and len(node.body) > 1 else node.body[0]
        start = self._lines[first.lineno - 1]
        if first.lineno == node.lineno or getattr(first, "decorator_list", None):
            return
        blanks = " " * first.col_offset
        self._opened.append((start, -len(self._source), f"{blanks}{_NAME}({number})\n"))

    def _place(self, node: ast.expr | ast.stmt | ast.pattern) -> tuple[int, int]:
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno or 0, node.end_col_offset or 0)

    def _at(self, line: int, column: int) -> int:
        return self._lines[line - 1] + len(self._bytes[line - 1][:column].decode())

    def written(self) -> str:
        """The text with its marks."""
        closed = [(at, 0, order, text) for at, order, text in self._closed]
        opened = [(at, 1, order, text) for at, order, text in self._opened]
        parts: list[str] = []
        last = 0
        for at, _, _, text in [*sorted([*closed, *opened, (self._begin(), 2, 0, _IMPORTED)])]:
            parts += [self._source[last:at], text]
            last = at
        return "".join([*parts, self._source[last:]])

    def _begin(self) -> int:
        """Behind the text about the module and the imports from the future."""
        at = 0
        for node in self._tree.body:
            if not (_is_text(node) or isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                break
            at = self._place(node)[1]
        return at


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _defined(node: ast.stmt) -> str:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return next((one.id for one in targets if isinstance(one, ast.Name)), " ")


def _names(node: ast.AST) -> set[str]:
    return set(_all_names(node))


def _all_names(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr
