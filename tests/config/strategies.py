"""Any valid settings, made from the settings' own types."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import hypothesis.strategies as st
from pydantic import BaseModel

from supervisor.config.management import GroupSettings
from supervisor.config.settings import DefaultSettings, ModelSettings, Settings
from supervisor.core.options import LaunchOptions, names_file, options_of
from supervisor.core.options.kinds import MOST_OVERRIDES, Many, Override, Text
from supervisor.engines.command.options import CommandOptions

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12) | st.sampled_from([
    "on",
    "1e5",
    "0o17",
    "12:30",
    "null",
    "${x}",
    "$${env.X}",
    "a: b",
    "# no",
    "~",
    "<<",
    "- x",
    "2026-01-01",
])
NAMES = TEXT.filter(lambda text: bool(text.strip()) and text.isprintable())
ABSOLUTE = st.from_regex(r"/[a-z]{1,6}/[a-z ]{0,3}[a-z]\.gguf", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
ROWS = options_of(LaunchOptions)
# What a type alone does not say, by field
SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "api_keys": st.lists(st.from_regex(r"[!-~]{8,12}", fullmatch=True), max_size=2),
    "allowed_origins": st.lists(st.sampled_from(["*", "null", "http://localhost:3000", "app://x"]), max_size=2),
    "listen": st.lists(st.sampled_from(["127.0.0.1:8687", "[::1]:0"]), max_size=2),
    "fetch_allow": st.lists(st.sampled_from(["10.0.0.0/8", "127.0.0.1", "fd00::/8"]), max_size=2),
    "tls_cert": st.none(),
    "tls_key": st.none(),
    "tls_client_ca": st.none(),
    "rpc": st.lists(st.from_regex(r"[a-z]{1,5}:[0-9]{1,5}", fullmatch=True), max_size=2),
    **{row.name: st.just(["exps=CPU"]) for row in ROWS if row.kind == Many(Override(), MOST_OVERRIDES)},
    "replicas": st.integers(1, 9) | st.integers(1, 9).map(lambda n: f"{n}..{n + 2}"),
    "filters": st.fixed_dictionaries(
        {}, optional={"set": st.dictionaries(TEXT, JSON, max_size=2), "strip": st.lists(TEXT, max_size=2)}
    ),
    "sampling": st.fixed_dictionaries(
        {},
        optional={"temperature": st.floats(0, 2), "n_predict": st.integers(-1, 99), "repetition_penalty": st.just(1.1)},
    ),
    "env": st.dictionaries(st.from_regex(r"[A-KM-Z][A-Z_]{0,5}", fullmatch=True), TEXT, max_size=2),
    "extra_args": st.sampled_from([(), ("--no-warmup",), ("--temp", "0.5")]),
    "chat_template_kwargs": st.dictionaries(TEXT, JSON, max_size=2),
    "lora": st.lists(st.fixed_dictionaries({"path": ABSOLUTE}, optional={"scale": st.floats(-9, 9)}), max_size=2),
    "members": st.just(["demo"]),
    "models_dir": st.just("/models"),
    "endpoint": st.just("https://hub.example"),
    "workers": st.fixed_dictionaries(
        {}, optional={"listen": st.sampled_from([None, "0.0.0.0:8486", "[::1]:0", "studio:80"])}
    ),
    "cluster": st.fixed_dictionaries({}, optional={"undecided": st.sampled_from(["refuse", "local"])}),
    "token": st.from_regex(r"[!-~]{1,9}", fullmatch=True),
    "cache": st.just("/cache"),
    **{row.name: ABSOLUTE for row in ROWS if isinstance(row.kind, Text) and names_file(row.kind)},
}


def of_type(kind: Any, limits: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Values of an annotation; `limits` are pydantic's metadata beside it."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner = tuple(limit for part in parts[1:] for limit in getattr(part, "metadata", (part,)))
        return of_type(parts[0], (*limits, *inner))
    if origin in {Union, types.UnionType}:
        return st.one_of(*(of_type(part, limits) for part in parts))
    if origin is Literal:
        return st.sampled_from(parts)
    if origin is tuple:
        least = next((limit.min_length for limit in limits if hasattr(limit, "min_length")), 0)
        return st.lists(of_type(parts[0]), min_size=least, max_size=3)
    if origin is dict:
        return st.dictionaries(TEXT, of_type(parts[1]), max_size=2)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return of_model(kind)
    low = _limit(limits, "ge", _limit(limits, "gt", -9))
    high = _limit(limits, "le", 1000)
    if kind is float:
        return st.floats(low, high, exclude_min=any(hasattr(limit, "gt") for limit in limits), allow_nan=False)
    if kind is int:
        return st.integers(low, high)
    return {str: TEXT, bool: st.booleans(), type(None): st.none()}[kind]


def _limit(limits: tuple[Any, ...], name: str, otherwise: Any) -> Any:
    return next((getattr(limit, name) for limit in limits if hasattr(limit, name)), otherwise)


def of_model(model: type[BaseModel], *without: str) -> st.SearchStrategy[dict[str, Any]]:
    """The YAML of one mapping: any choice of its keys."""
    values = {
        name: SPECIAL[name] if name in SPECIAL else of_type(field.annotation, tuple(field.metadata))
        for name, field in model.model_fields.items()
        if name not in without
    }
    required = {name: value for name, value in values.items() if model.model_fields[name].is_required()}
    chosen = st.sets(st.sampled_from(sorted(values.keys() - required.keys())), max_size=3)
    return chosen.flatmap(
        lambda names: st.fixed_dictionaries({**required, **{name: values[name] for name in sorted(names)}})
    )


SOURCES = st.fixed_dictionaries({"file": ABSOLUTE}) | st.sampled_from([
    {"source": "demo"},
    {"source": "o/r:Q4_K_M"},
    {"source": "~/x.gguf"},
    {"source": "/a/folder"},
])
COMMANDS = {row.name for row in options_of(CommandOptions)}
LAUNCHED = st.builds(dict.__or__, of_model(ModelSettings, "source", "file", "aliases", *COMMANDS), SOURCES)
COMMANDED = st.fixed_dictionaries(
    {
        "source": st.just("command"),
        "command": st.sampled_from([["./run", "${PORT}"], ["run", "--at=${SOCKET}", "${x"]]),
    },
    optional={
        "ready": st.sampled_from(["none", "/", "/health"]),
        "apis": st.lists(st.sampled_from(["/v1/chat/completions", "/v1/embeddings"]), max_size=2),
        **{name: of_type(ModelSettings.model_fields[name].annotation) for name in ("model_name", "memory", "ttl")},
        "slots": st.integers(1, 9),
        "stop": st.just(["end", "${PID}"]),
    },
)
MODELS = LAUNCHED | COMMANDED


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """A whole file as data."""
    found = draw(of_model(Settings, "models", "groups", "defaults"))
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    half = len(names) // 2
    models = {name: draw(MODELS) for name in names[: half + 1]}
    for name, alias in zip(models, names[half + 1 :], strict=False):
        if alias != "demo":
            models[name]["aliases"] = [alias]
    found["models"] = models
    found["defaults"] = draw(of_model(DefaultSettings))
    found["groups"] = draw(st.dictionaries(TEXT, of_model(GroupSettings), max_size=2))
    return found


def escape(data: Mapping[str, object]) -> dict[str, object]:
    """The same data, written so that `expand` gives it back."""
    return {key: _escaped(value) for key, value in data.items()}


def _escaped(data: object) -> object:
    if isinstance(data, str):
        return data.replace("${", "$${")
    if isinstance(data, dict):
        return escape(data)
    return [_escaped(item) for item in data] if isinstance(data, list | tuple) else data
