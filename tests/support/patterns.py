"""The regular expressions of the program, and texts on which a careless one takes more than linear time."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from supervisor.core.engine_output import failures

op: Any = importlib.import_module("re._constants")  # the parser's names; no public ones exist
parser: Any = importlib.import_module("re._parser")
ROOT: Final = Path(__file__).parents[2]
_METHODS: Final = ("match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split")
_POOL: Final = " \t\n\r\0aAzZ09_.-+\"'`\\/=<>[]{}():;,#$%*|~@&?!é"
_TAILS: Final = ("", "\0", "\n", '"', "x", "=", "!!")


@dataclass(frozen=True)
class Found:
    """One regular expression.

    Attributes:
        place: the module and the line. text: what stands there.
        pattern: compiled; None if it is made of what only a function knows.
        methods: how it is used, as far as its module tells; else every text is searched by it.
    """

    place: str
    text: str
    pattern: re.Pattern[Any] | None
    methods: tuple[str, ...]


def all_patterns() -> Iterator[Found]:
    """Every call of the module `re` in the program that takes a pattern."""
    for path in sorted((ROOT / "supervisor").rglob("*.py")):
        source = path.read_text("utf-8")
        if "import re\n" not in source:
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        scope = vars(importlib.import_module(name))
        names = _names(ast.parse(source))
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and _takes_a_pattern(node):
                yield _found(node, f"{name}:{node.lineno}", source, scope, names.get(node.lineno))
    for rule in failures._RULES:
        cells = [cell.cell_contents for cell in getattr(rule, "__closure__", None) or ()]
        for pattern in next((one for one in cells if isinstance(one, list)), []):
            yield Found("supervisor.core.engine_output.failures:_RULES", pattern.pattern, pattern, ("search",))


def _takes_a_pattern(node: ast.Call) -> bool:
    if not isinstance(node.func, ast.Attribute) or not node.args:
        return False
    of_module = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
    return of_module and node.func.attr in {"compile", *_METHODS}


def _names(tree: ast.Module) -> dict[int, str]:
    """By line: to what name a module gives what it compiles there."""
    found = {}
    for node in tree.body:
        if isinstance(node, (ast.AnnAssign, ast.Assign)) and isinstance(node.value, ast.Call):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            found[node.value.lineno] = ast.unparse(target)
    return found


def _found(call: ast.Call, place: str, source: str, scope: dict[str, Any], name: str | None) -> Found:
    text = ast.unparse(call)
    arguments = [call.args[0], *(one for one in call.args[1:] if "re." in ast.unparse(one))]
    try:
        values = [eval(compile(ast.Expression(one), place, "eval"), scope) for one in arguments]
    except NameError:
        return Found(place, text, None, ())
    assert isinstance(call.func, ast.Attribute)
    used: tuple[str, ...] = (call.func.attr,)
    if used == ("compile",):
        used = tuple(sorted(set(re.findall(rf"\b{name}\.({'|'.join(_METHODS)})\(", source)))) if name else ()
    return Found(place, text, re.compile(*values), used or ("search", "fullmatch"))


# -- texts ------------------------------------------------------------------------------------------------------------


def hostile(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """(what comes first, what is repeated, what comes last), for each repetition of the pattern and each character."""
    tree = parser.parse(pattern.pattern, pattern.flags)
    letters = {chr(value) for code, value in _codes(tree) if code in {op.LITERAL, op.NOT_LITERAL} and value < 0x10000}
    seen: set[tuple[str, str]] = {("", "")}
    for first, unit in _repeats(list(tree), "", sorted(letters | set(_POOL))):
        if (first, unit) not in seen:
            seen.add((first, unit))
            for tail in _TAILS:
                yield first, unit, tail
            yield "", first + unit, ""
            yield f"x{first}", unit, "x"
            yield f"\n{first}", unit, "x"


def _codes(tree: Any) -> Iterator[tuple[Any, Any]]:
    for code, value in tree:
        yield code, value
        for part in _parts(value):
            yield from _codes(part)
        if code is op.IN:
            yield from ((one, inner) for one, inner in value if one is op.LITERAL)


def _parts(value: Any) -> Iterator[Any]:
    """The patterns inside of what a node of the parser holds."""
    if isinstance(value, parser.SubPattern):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _parts(one)


def _repeats(tree: list[tuple[Any, Any]], before: str, pool: list[str]) -> Iterator[tuple[str, str]]:
    for code, value in tree:
        if code in {op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT}:
            body = value[2]
            units = _one_of(list(body), pool) if len(body) == 1 else [_sample(list(body), pool)]
            for unit in units:
                yield before, unit
        for part in _parts(value):
            yield from _repeats(list(part), before, pool)
        before += _sample([(code, value)], pool)


def _sample(tree: list[tuple[Any, Any]], pool: list[str]) -> str:
    """A short text that the nodes match, look-around and back references apart."""
    said = ""
    for code, value in tree:
        if code in {op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT}:
            said += _sample(list(value[2]), pool) * value[0]
        elif code is op.BRANCH:
            said += _sample(list(value[1][0]), pool)
        elif code in {op.SUBPATTERN, op.ATOMIC_GROUP}:
            said += _sample(list(next(_parts(value))), pool)
        else:
            said += next(iter(_one_of([(code, value)], pool)), "")
    return said


def _one_of(tree: list[tuple[Any, Any]], pool: list[str]) -> list[str]:
    """The characters of the pool that a node of one character matches; otherwise one sample."""
    code, value = tree[0]
    if code is op.LITERAL:
        return [chr(value)]
    if code is op.NOT_LITERAL:
        return [one for one in pool if ord(one) != value]
    if code is op.ANY:
        return [one for one in pool if one != "\n"]
    if code is op.IN:
        return [one for one in pool if _in(value, one)]
    if code in {op.AT, op.ASSERT, op.ASSERT_NOT, op.GROUPREF}:
        return []
    return [_sample(tree, pool)]


def _in(members: Any, char: str) -> bool:
    """Whether a set of characters has this one."""
    negated, has = False, False
    for code, value in members:
        negated |= code is op.NEGATE
        has |= code is op.LITERAL and ord(char) == value
        has |= code is op.RANGE and value[0] <= ord(char) <= value[1]
        has |= code is op.CATEGORY and re.fullmatch(_CATEGORIES[value], char) is not None
    return has != negated


_CATEGORIES: Final = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}
