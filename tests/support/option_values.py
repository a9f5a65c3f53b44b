"""Values that an option may have, made from its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

from supervisor.core.options import LoraAdapter, Option, kinds

# Where the kind alone does not lead to a value that llama-server can do something with
_OWN: dict[str, list[Any]] = {
    "embeddings": ["on", "off", "auto"],
    "load_mode": ["dio", "none", "mmap", "mlock", "mmap+mlock", "auto"],
    "spec_type": [("draft-mtp",), ("ngram-mod",)],
    "mmproj_device": ["none"],
    "chat_template": ["chatml", "{{ bos_token }}x"],
    "reasoning_format": ["none", "deepseek", "deepseek-legacy", "auto"],
    "reasoning_effort": ["default", "minimal", "low", "medium", "high", "xhigh", "max"],
    "reasoning_budget_message": ["Enough.", "--stop", ""],
}


def values_of(row: Option) -> list[Any]:
    """Some, small ones; the default may be among them."""
    return _OWN.get(row.name) or _of(row.kind)


def another(row: Option) -> Any:
    """A value that is not the default, and says something."""
    return next(value for value in values_of(row) if value and value != row.default)


def _of(kind: Any) -> list[Any]:
    return _BY_KIND[type(kind)](kind)


_BY_KIND: dict[type, Callable[[Any], list[Any]]] = {
    kinds.Truth: lambda _: [True, False],
    kinds.Choice: lambda kind: list(kind.words),
    kinds.Whole: lambda kind: [number for number in (7, 1, 0, -1) if kind.least <= number <= kind.most],
    kinds.Decimal: lambda kind: [number for number in (0.5, 1.0, 0.0, 2.25, 1e6) if kind.least <= number <= kind.most],
    kinds.Text: lambda kind: ["/x.gguf"] if kind.what in {"path", "folder"} else ["x"],
    kinds.Override: lambda _: ["exps=CPU", r"blk\.0\..*=CPU"],
    kinds.Adapter: lambda _: [LoraAdapter("/a.gguf"), LoraAdapter("/b,c.gguf", 0.5)],
    kinds.Many: lambda kind: [(_of(kind.item)[0],), tuple(_of(kind.item)[:2]), ()],
    kinds.Words: lambda _: [("--no-warmup",), ("--temp", "0.5")],
    kinds.Variables: lambda _: [{"OMP_NUM_THREADS": "1"}],
    kinds.Json: lambda _: [{"x": 1}, {"enable_thinking": False}],
}


def strategy(row: Option) -> st.SearchStrategy[Any]:
    """Values for a property."""
    if isinstance(row.kind, kinds.Json):
        return st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3) | st.booleans())
    return st.sampled_from(values_of(row))
