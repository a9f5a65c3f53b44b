"""What is wrong with a configuration is said all at once, and in the words of those who write one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from supervisor.config.document import read_document, to_yaml
from supervisor.config.faults import ConfigFault, option_fault
from supervisor.config.load import Start, load
from supervisor.config.options import launch_options
from supervisor.config.settings import ModelOptions, ModelSettings, Settings
from supervisor.errors import ConfigError

PROGRAMMERS = re.compile(
    r"input should|valid (tuple|string|integer|number|boolean|dictionary|list)|instance of|pydantic|dictionary|Settings"
    r"|finite|type=|NoneType|\bstr\b|\bint\b|JsonValue|tuple|parse",
    re.IGNORECASE,
)
WRONG: list[Any] = [5, -5, 10**30, 1.5, float("inf"), True, "x" * 40_000, "yes", "", None, [], [5], [[]], {}]
WRONG += [["x"] * 300, {"a": 1}, {"a": [1]}, {"x" * 300: "y"}]


def faults(tmp_path: Path, text: str, start: Start | None = None) -> dict[str, str]:
    """What is wrong, by key."""
    path = tmp_path / "supervisor.yaml"
    path.write_text(text)
    try:
        load(path, {}, start or Start())
    except ConfigError as error:
        found = [fault for fault in error.faults if isinstance(fault, ConfigFault) and fault.line is not None]
        return {fault.key: fault.message for fault in found}
    return {}


def places(model: type[BaseModel], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield from ((*above, name) for name in model.model_fields)


def sections() -> Iterator[tuple[str, ...]]:
    for name, field in Settings.model_fields.items():
        yield (name,)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) and name != "defaults":
            yield from places(field.annotation, (name,))
    yield from places(ModelSettings, ("models", "m"))
    yield from (("groups", "g"), ("groups", "g", "members"), ("groups", "g", "rule"), ("models", "m"))
    yield from (("models", "m", "filters", "set"), ("models", "m", "filters", "strip"), ("models", "m", "lora"))


@pytest.mark.parametrize("loc", list(sections()), ids=".".join)
def test_no_wrong_value_is_answered_in_the_words_of_programmers(tmp_path: Path, loc: tuple[str, ...]) -> None:
    for value in WRONG:
        data: Any = value
        for part in reversed(loc):
            data = {part: data}
        for key, message in faults(tmp_path, to_yaml(data)).items():
            assert not PROGRAMMERS.search(message), (key, message)
            assert not message.startswith("must be a value that JSON has") or "set" in loc, (key, message)


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        ("groups: {g: {members: a}}", "groups.g.members", "must be a list of names"),
        ("models: {m: {file: x, device: CUDA0}}", "models.m.device", "must be a list of names, or null"),
        ("models: {m: {file: x, pin: yes}}", "models.m.pin", "must be true or false; yes is a word like any other"),
        ("models: {m: {file: x, pin: 1}}", "models.m.pin", "must be true or false"),
        ("models: {m: 5}", "models.m", "must be a mapping of keys to values"),
        ("models: 5", "models", "must be a mapping of keys to values"),
        ("models: {m: {file: x, aliases: [5]}}", "models.m.aliases.0", "must be a name; put it in quotes"),
        ("models: {m: {file: x, parallel: 999}}", "models.m.parallel", "must be a whole number from 1 to 256, or null"),
        ("models: {m: {file: x, ctx_size: many}}", "models.m.ctx_size", "a number such as 8192 or 8k"),
        ("models: {m: {file: x, ctx_size: true}}", "models.m.ctx_size", "or one with a unit, such as 8k, or null"),
        ("models: {m: {file: x, ttl: soon}}", "models.m.ttl", "a duration such as 90, 45s, 10m or 1h30m"),
        ("models: {m: {file: x, flash_attn: maybe}}", "models.m.flash_attn", "must be one of on, off, auto"),
        ("models: {m: {file: x, lora: [{}]}}", "models.m.lora.0.path", "is missing"),
        ("models: {m: {file: x, override_tensor: ['(?=a)=CPU']}}", "models.m.override_tensor.0", "look-around"),
        ("models: {m: {file: x, ngl: 9}}", "models.m.ngl", "did you mean n_gpu_layers?"),
        ("models: {m: {file: x, c: 9}}", "models.m.c", "did you mean ctx_size?"),
        ("models: {m: {file: x, num_ctx: 9}}", "models.m.num_ctx", "did you mean ctx_size?"),
        ("models: {m: {file: x, ctx-size: 9}}", "models.m.ctx-size", "did you mean ctx_size?"),
        ("models: {m: {model: x.gguf}}", "models.m.model", "did you mean file?"),
        ("server: {api_keys: [short]}", "server.api_keys.0", "must have at least 8 characters"),
        ("server: {api_keys: ['with a space']}", "server.api_keys.0", "must be 8 to 1024 printable ASCII characters"),
        ("devices: {rpc: [x]}", "devices.rpc.0", "must be host:port"),
        ("hub: {endpoint: ftp://x}", "hub.endpoint", "http:// or https://"),
        ("server: {host: 0.0.0.0}", "server.host", "can be reached from other machines"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(tmp_path: Path, text: str, key: str, told: str) -> None:
    found = faults(tmp_path, text)
    assert told in found.get(key, ""), found


def test_no_fault_hides_another(tmp_path: Path) -> None:
    text = """
server: {host: 0.0.0.0, prot: 1}
defaults: {pin: yes, extra_args: [--port, '1', --host, x]}
models:
  a: {file: x, source: demo, ctx_size: none}
  b: {source: nowhere, extra_args: [--model, y], env: {LLAMA_API_KEY: x, LLAMA_ARG_C: '1'}, aliases: [a]}
  c: {ctx_size: 5}
  d: 5
  e: {file: "${nix}"}
groups:
  g: {members: [f, d, e], rule: sometimes}
  h: {rule: alone}
"""
    assert faults(tmp_path, text).keys() == {
        *("server.host", "server.prot", "defaults.pin", "defaults.extra_args.0", "defaults.extra_args.2"),
        *("models.a.file", "models.a.ctx_size", "models.b.source", "models.b.extra_args.0", "models.b.aliases.0"),
        *("models.b.env.LLAMA_API_KEY", "models.b.env.LLAMA_ARG_C", "models.c", "models.d", "models.e.file"),
        *("groups.g.members.0", "groups.g.rule", "groups.h.members"),
    }


def test_nor_does_a_fault_make_one_up(tmp_path: Path) -> None:
    """A model whose source is wrong has one all the same; groups may name it."""
    text = "models: {a: {source: [x]}}\nserver: {host: 0.0.0.0, api_keys: [no]}\ngroups: {g: {members: [a]}}\n"
    assert faults(tmp_path, text).keys() == {"models.a.source", "server.api_keys.0"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("'10m'", 600), ("1h30m", 5400), ("90", 90), ("'90'", 90), ("500ms", 0.5), ("1.5 h", 5400), ("2d", 172_800)],
)
def test_durations_have_units(tmp_path: Path, text: str, value: float) -> None:
    path = tmp_path / "supervisor.yaml"
    path.write_text(f"models: {{m: {{file: x, ttl: {text}}}}}\nserver: {{drain: {text}}}")
    settings = load(path, {}).settings
    assert (settings.models["m"].ttl, settings.server.drain) == (value, value)


@pytest.mark.parametrize("text", ["10 parsecs", "m", "-5m", "1m -5s", "", "5mm", "1h30", "0", "1e9d", "9" * 40])
def test_what_is_no_duration(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, f"models: {{m: {{file: x, ttl: '{text}'}}}}").keys() == {"models.m.ttl"}


def test_so_have_tokens_and_sizes(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.yaml"
    path.write_text("""
models: {m: {file: x, ctx_size: 8k, cache_ram: 4g, batch_size: 1.5k, yarn_orig_ctx: 1m, reasoning_budget: -1}}
context: {target: 32K, min: 4k}
kv_store: {max_mib: 1t}
devices: {reserve_mib: {CUDA0: 2GiB, CPU: 512m}}
""")
    settings = load(path, {}).settings
    model = launch_options(settings.models["m"])
    assert (model.ctx_size, model.cache_ram, model.batch_size, model.yarn_orig_ctx) == (8192, 4096, 1536, 1 << 20)
    assert (settings.context.target, settings.context.min, settings.kv_store.max_mib) == (32768, 4096, 1 << 20)
    assert settings.devices.reserve_mib == {"CUDA0": 2048, "CPU": 512}
    for text in ("8x", "k", "8kk", "0.3", "1.0001k", "-1k"):
        assert faults(tmp_path, f"models: {{m: {{file: x, ctx_size: '{text}'}}}}").keys() == {"models.m.ctx_size"}


def test_variables_may_be_truth_values_and_numbers(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.yaml"
    path.write_text("restore: ${env.R:-true}\nmodels: {m: {file: x, ctx_size: '${env.C}', cache_ram: '${env.M}'}}")
    settings = load(path, {"C": "8k", "M": "-1"}).settings
    options = launch_options(settings.models["m"])
    assert (settings.restore, options.ctx_size, options.cache_ram) == (True, 8192, -1)


def test_options_of_requests_are_spoken_of_in_the_same_words() -> None:
    with pytest.raises(ValidationError) as caught:
        ModelOptions.model_validate({"parallel": 0, "ngl": 5, "swa_full": "yes", "file": "/x", "mmproj": "/x"})
    found = {str(item["loc"][0]): option_fault(item) for item in caught.value.errors()}
    assert found["parallel"] == "must be a whole number from 1 to 256, or null"
    assert found["ngl"] == "unknown key; did you mean n_gpu_layers?"
    assert found["swa_full"].startswith("must be true or false")
    assert found["file"].startswith("unknown key")
    assert found["mmproj"] == "may stand in the configuration file only"


def test_a_huge_file_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("# " + "x" * (5 << 20))
    with pytest.raises(ConfigError, match="larger than 4 MiB"):
        load(tmp_path / "c.yaml", {})
    assert read_document("").data == {}


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        *(("priority: 30", True), ("priority: -30", True), ("priority: 31", False), ("priority: -31", False)),
        *(("replicas: 1", True), ("replicas: 256", True), ("replicas: 0", False), ("replicas: 257", False)),
        *(("replicas: 2..2", True), ("replicas: 1..256", True), ("replicas: 3..2", False), ("replicas: 0..2", False)),
        *(("replicas: 1..257", False), ("replicas: true", False), ("replicas: 1...2", False)),
        *(("concurrency: 1", True), ("concurrency: 0", False), ("ttl: 0.5", True), ("ttl: 0", False)),
    ],
)
def test_how_a_model_is_managed_has_bounds(tmp_path: Path, text: str, valid: bool) -> None:
    assert (faults(tmp_path, f"models: {{m: {{file: x, {text}}}}}") == {}) is valid
