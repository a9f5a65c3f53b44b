"""Read YAML text into plain data that remembers the place of each part.

The scalars are those of YAML 1.2: `true` and `false` are the only truth values, so `flash_attn: on` is the word it
looks like, and no time of day becomes a number. Keys are text, whatever they look like. Anchors and `<<` work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

Loc: TypeAlias = tuple[str | int, ...]
"""Keys and list positions, from the top of the file."""

_MOST_DIGITS = 100  # of a number; what is longer cannot even be written out
_MOST_NODES = 200_000  # anchors can make a small text large
_PLACES_PER_NODE = 16  # looking through so many places is as much work as a node
_TAG = "tag:yaml.org,2002:"
_RESOLVERS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", list("-+.")),
    ("merge", r"<<", ["<"]),
)


class Place(NamedTuple):
    """A line and a column, both counted from 1."""

    line: int
    column: int


TOP = Place(1, 1)


class NotADocument(Exception):
    """The text cannot be read; the message says why and where."""

    def __init__(self, message: str, place: Place, loc: Loc = ()) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.loc = loc


@dataclass(frozen=True)
class Document:
    """The contents of a file. `keys`, `values`: the place of each key, and of each value."""

    data: dict[str, object]
    keys: Mapping[Loc, Place] = field(default_factory=dict)
    values: Mapping[Loc, Place] = field(default_factory=dict)

    def place(self, loc: Loc, *, key: bool = False) -> Place:
        """Return the place of the value (or of its `key`), else of the nearest thing around it."""
        if key and loc in self.keys:
            return self.keys[loc]
        while loc and loc not in self.values:
            loc = loc[:-1]
        return self.values.get(loc, TOP)


def read_document(text: str) -> Document:
    """Return the document of a text; an empty text is an empty document. Raise NotADocument."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotADocument(f"not valid YAML: {error.problem or error.context}", _place(mark)) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise NotADocument(f"not valid YAML: {error.reason}", place) from None
    except RecursionError:
        raise NotADocument("nested too deeply", TOP) from None
    return Document({}) if root is None else _Reader().document(root)


def to_yaml(data: object) -> str:
    """Return text that `read_document` reads back as this data; keys keep their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Loader(yaml.SafeLoader):
    """A YAML loader with our scalars."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own way


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that quotes what any YAML version would not read as text; no anchors."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True, so that everything is written where it stands."""
        return True


for _kind, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_pattern})$"), _first)


class _Reader:
    """One walk over the nodes."""

    def __init__(self) -> None:
        self._keys: dict[Loc, Place] = {}
        self._values: dict[Loc, Place] = {}
        self._above: list[Node] = []
        self._count = 0

    def document(self, root: Node) -> Document:
        try:
            data = self._value(root, ())
        except RecursionError:
            raise NotADocument("nested too deeply", TOP) from None
        if data is None:
            data = {}
        if not isinstance(data, dict):
            raise NotADocument("the file must hold a mapping at its top level", _place(root.start_mark))
        return Document(data, self._keys, self._values)

    def _value(self, node: Node, loc: Loc) -> object:
        self._values[loc] = place = _place(node.start_mark)
        self._count += 1
        if self._count > _MOST_NODES:
            raise NotADocument("too large, once anchors are followed", place, loc)
        if any(node is above for above in self._above):
            raise NotADocument("this anchor contains itself", place, loc)
        if isinstance(node, ScalarNode):
            return _scalar(node, loc)
        self._above.append(node)
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, loc)
            assert isinstance(node, SequenceNode)  # there is no other kind
            _check_tag(node, "seq", loc)
            return [self._value(item, (*loc, number)) for number, item in enumerate(node.value)]
        finally:
            self._above.pop()

    def _mapping(self, node: MappingNode, loc: Loc) -> dict[str, object]:
        _check_tag(node, "map", loc)
        merged: dict[str, object] = {}
        own: dict[str, object] = {}
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                merged |= {name: item for name, item in self._merged(value, loc).items() if name not in merged}
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                continue
            if not isinstance(key, ScalarNode):
                raise NotADocument("a key must be text", _place(key.start_mark), loc)
            if key.value in own:
                raise NotADocument(f"the key {key.value!r} stands here twice", _place(key.start_mark), loc)
            self._forget((*loc, key.value))
            self._keys[(*loc, key.value)] = _place(key.start_mark)
            own[key.value] = self._value(value, (*loc, key.value))
        return {**merged, **own}

    def _merged(self, node: Node, loc: Loc) -> dict[str, object]:
        """Return the contents that `<<` brings in: a mapping, or several of which the first counts."""
        place, own = _place(node.start_mark), self._values[loc]
        sources = node.value if isinstance(node, SequenceNode) else [node]
        found: dict[str, object] = {}
        for source in reversed(sources):
            if not isinstance(source, MappingNode):
                raise NotADocument("`<<` takes a mapping, or a list of them", place, loc)
            brought = self._value(source, loc)
            assert isinstance(brought, dict)  # as every mapping is
            found |= brought
        self._values[loc] = own
        return found

    def _forget(self, loc: Loc) -> None:
        """Forget the places inside a merged value that is overridden."""
        if loc not in self._values:
            return
        self._count += len(self._values) // _PLACES_PER_NODE
        for known in (self._keys, self._values):
            for other in [other for other in known if other[: len(loc)] == loc]:
                del known[other]


def _scalar(node: ScalarNode, loc: Loc) -> object:
    place = _place(node.start_mark)
    kind = node.tag.removeprefix(_TAG)
    text = node.value
    try:
        if kind == "int" and len(text) > _MOST_DIGITS:
            raise ValueError
        if kind == "int":
            return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)
        if kind == "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        raise NotADocument(f"{text[:40]!r} is no number", place, loc) from None
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind in {"str", "merge"}:
        return text
    raise NotADocument(f"the tag {node.tag!r} means nothing here", place, loc)


def _check_tag(node: Node, kind: str, loc: Loc) -> None:
    if node.tag != _TAG + kind:
        raise NotADocument(f"the tag {node.tag!r} means nothing here", _place(node.start_mark), loc)


def _place(mark: yaml.Mark | None) -> Place:
    return Place(mark.line + 1, mark.column + 1) if mark is not None else TOP
