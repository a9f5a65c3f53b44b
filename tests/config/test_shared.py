"""What the nodes of a cluster share: what may stand in it, and how a node's own file goes over it."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from supervisor.config.document import to_yaml
from supervisor.config.load import load, load_text
from supervisor.config.settings import DefaultSettings, ModelOptions, ModelSettings, Settings
from supervisor.config.shared import Shared, in_force, load_shared, over, shared_of
from supervisor.config.shown import shown
from supervisor.core.cluster.messages import MOST_CONFIG_BYTES, MOST_TEXT, Config, bytes_of, read
from supervisor.core.launch import rules
from supervisor.errors import ConfigError
from supervisor.models.configured import configured_models

MODEL = {"source": "owner/repo:Q4_K_M"}


def faults(text: str | dict[str, Any]) -> list[str]:
    """What is wrong with a text."""
    try:
        load_shared(text if isinstance(text, str) else to_yaml(text), "f.yaml")
    except ConfigError as error:
        return error.message.splitlines()
    return []


def settings(data: dict[str, Any]) -> Settings:
    return load_shared(to_yaml(data), "f.yaml").settings


def own(data: dict[str, Any]) -> Settings:
    return load_text(to_yaml(data), Path("/etc/supervisor.yaml"), {}).settings


def test_models_defaults_groups_and_macros_may_stand_there() -> None:
    assert faults("") == []
    found = settings({
        "macros": {"short": "5m", "shelf": "/srv/models"},
        "defaults": {"ttl": "${short}", "flash_attn": "on", "sampling": {"temperature": 0.5}},
        "models": {
            "a": {**MODEL, "aliases": ["b"], "ctx_size": "8k", "pin": True, "replicas": "1..2"},
            "c": {"file": "${shelf}/c.gguf", "extra_args": ["--no-warmup"]},
            "d": {"source": "demo"},
            "e": {"source": "/srv/models/folder"},
            "m": {"source": "owner/repo:mlx"},
        },
        "groups": {"g": {"members": ["a", "c"]}},
    })
    assert found.models["a"].ctx_size == 8192  # type: ignore[attr-defined]  # of the table of options
    assert found.models["c"].file == "/srv/models/c.gguf"
    assert found.defaults.ttl == 300


@pytest.mark.parametrize("section", sorted(set(Settings.model_fields) - {"models", "defaults", "groups"}))
def test_every_other_section_is_a_node_s_own(section: str) -> None:
    (fault,) = faults({"models": {"a": MODEL}, section: {"port": -1}})
    assert fault.startswith("f.yaml:4:1: " + section + ": is each node's own")
    assert "configuration file of the node" in fault


@pytest.mark.parametrize("key", sorted(set(DefaultSettings.model_fields) - set(ModelOptions.model_fields)))
def test_what_no_client_may_give_reaches_no_node(key: str) -> None:
    """All that a load may not say is refused, whatever its value, but for what is no launch option."""
    treated = key in TREATMENT
    for data in ({"models": {"a": {**MODEL, key: ["/x"]}}}, {"defaults": {key: ["/x"]}}):
        found = [fault for fault in faults(data) if "own configuration file only" in fault]
        assert len(found) == (0 if treated else 1)


TREATMENT = frozenset(
    {"ttl", "pin", "preload", "priority", "replicas", "concurrency", "filters", "sampling", "max_seconds"}
    | {"reasoning_only", "tool_calls"}
)


@pytest.mark.parametrize("key", sorted(set(ModelSettings.model_fields) - set(DefaultSettings.model_fields)))
def test_no_program_is_named(key: str) -> None:
    if key in {"source", "file", "aliases"}:
        return
    (fault,) = faults({"models": {"a": {**MODEL, key: "x"}}})
    assert f"models.a.{key}: runs a program" in fault


@pytest.mark.parametrize(
    "text",
    [
        "models: {a: {source: command, command: [sh, -c, id]}}",
        "macros: {x: command}\nmodels: {a: {source: '${x}', command: [sh, -c, id]}}",
        "models: {a: &a {source: command, command: [sh, -c, id]}, b: {<<: *a}}",
        "defaults: {source: command}",
    ],
)
def test_no_command_comes_in_by_another_way(text: str) -> None:
    assert any("runs a program" in fault or "unknown key" in fault for fault in faults(text))


@pytest.mark.parametrize("text", ["${env.HOME}", "${env.HOME:-x}", "/x/${env.PATH}/m.gguf", "${m}"])
def test_no_variable_of_a_node_is_seen(text: str) -> None:
    found = faults({"macros": {"m": "${env.HF_TOKEN}"}, "models": {"a": {"source": text}}})
    assert any("each node has variables of its own" in fault for fault in found)


@pytest.mark.parametrize("path", ["./m.gguf", "m.gguf", "~/m.gguf", "../m.gguf"])
def test_a_file_is_the_same_on_every_node(path: str) -> None:
    for key in ("source", "file"):
        (fault,) = faults({"models": {"a": {key: path}}})
        assert f"f.yaml:3:{len(key) + 7}: models.a.{key}: '{path}' would be another file on each node" in fault


def test_a_model_of_a_node_s_folder_is_not_shared() -> None:
    (fault,) = faults({"models": {"a": {"ttl": 5}}})
    assert fault == "f.yaml:2:3: models.a: name the model's `source` or `file`"


def test_further_arguments_are_those_of_clients() -> None:
    """Of every flag in the table: what a client may not give may not stand there; nor one that nobody knows."""
    table = {flag: rules.rule_of(flag) for flag in inspect_rules()}
    assert len(table) > 100
    for flag, rule in table.items():
        for data in ({"defaults": {"extra_args": [flag]}}, {"models": {"a": {**MODEL, "extra_args": [flag]}}}):
            assert bool(faults(data)) == (rule.level != "anybody"), flag
    assert faults({"defaults": {"extra_args": ["--newer-than-this", "/etc/passwd"]}})
    assert faults({"defaults": {"extra_args": ["--media_path=/etc"]}})


def inspect_rules() -> set[str]:
    """The flags that the table of rules names."""
    texts = [node.value for node in ast.walk(ast.parse(inspect.getsource(rules))) if isinstance(node, ast.Constant)]
    words = {word for text in texts if isinstance(text, str) for word in text.split()}
    return {word for word in words if word.startswith("-") and word.strip("-").replace("-", "").isalnum()}


def test_all_faults_are_told_at_once_with_line_and_column() -> None:
    text = "server: {port: 1}\nmodels:\n  a: {source: o/r:q, ctx_sise: 5}\n  b: {file: ./x.gguf}\nnonsense: 1\n"
    assert [fault.partition(": ")[0] for fault in faults(text)] == [
        "f.yaml:1:1",
        "f.yaml:3:22",
        "f.yaml:4:13",
        "f.yaml:5:1",
    ]
    assert "did you mean ctx_size?" in faults(text)[1]
    assert faults("models:\n  a: [")[0].startswith("f.yaml:2:7: not valid YAML")


def test_it_has_an_end() -> None:
    assert faults("#" * MOST_TEXT) == []
    assert faults("#" * (MOST_TEXT + 1)) == ["f.yaml is larger than 256 KiB, which a cluster's configuration may have."]
    assert faults("#" + "é" * (MOST_TEXT // 2)) != []  # bytes count, not characters
    worst = Config(1, "n", 0.0, "\n" * MOST_TEXT)  # twice as long in JSON
    assert read(bytes_of(worst), Config) == worst
    assert 2 * MOST_TEXT < len(bytes_of(worst)) < MOST_CONFIG_BYTES


# ── merged ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_s_own_model_counts_as_a_whole() -> None:
    found = over(
        own({"models": {"a": {"source": "mine/m:q"}}}), settings({"models": {"a": {**MODEL, "ttl": 5}, "b": MODEL}})
    )
    assert list(found.models) == ["a", "b"]
    assert found.models["a"].source == "mine/m:q"
    assert found.models["a"].ttl is None


def test_a_name_means_what_the_node_says() -> None:
    mine = own({"models": {"a": {"source": "mine/m:q", "aliases": ["x", "y"]}}})
    shared = settings({"models": {"x": MODEL, "b": {**MODEL, "aliases": ["y", "a", "z", "w"]}, "w2": MODEL}})
    found = over(mine, shared, ["z", "w2"])
    assert list(found.models) == ["a", "b"]
    assert found.models["b"].aliases == ("w",)
    assert {name for one in configured_models(found) for name in (one.id, *one.aliases)} == {
        "a",
        "x",
        "y",
        "b",
        "w",
        "demo",
    }


def test_defaults_count_key_by_key() -> None:
    mine = own({
        "defaults": {"ttl": None, "ctx_size": 4096, "env": {"A": "b"}, "sampling": {"temperature": 1}},
        "models": {"mine": {"source": "mine/m:q", "max_seconds": 7}},
    })
    shared = settings({
        "defaults": {"ttl": 5, "parallel": 2, "max_seconds": 9, "sampling": {"temperature": 0, "top_k": 3}},
        "models": {"a": {**MODEL, "parallel": 3}},
    })
    found = over(mine, shared)
    assert found.defaults.model_fields_set == {"ttl", "ctx_size", "env", "sampling", "parallel", "max_seconds"}
    entries = {one.id: one for one in configured_models(found)}
    assert entries["a"].policy.ttl is entries["mine"].policy.ttl is None
    assert [entries[name].options.parallel for name in ("a", "mine")] == [3, 2]
    assert [entries[name].options.ctx_size for name in ("a", "mine")] == [4096, 4096]
    assert [entries[name].requests.max_seconds for name in ("a", "mine")] == [9, 7]
    assert entries["a"].requests.sampling == entries["mine"].requests.sampling == {"temperature": 1, "top_k": 3}
    assert dict(entries["a"].options.env) == {"A": "b"}


def test_groups_count_as_a_whole_and_all_else_is_the_node_s() -> None:
    mine = own({
        "models": {"m": {"source": "mine/m:q"}, "n": {"source": "mine/n:q"}},
        "groups": {"g": {"members": ["m", "n"], "rule": "alone"}},
        "server": {"port": 9},
        "queue": {"max_waiting": 7},
    })
    shared = settings({
        "models": {"a": MODEL, "b": MODEL},
        "groups": {"g": {"members": ["a"]}, "h": {"members": ["a", "b"]}},
    })
    found = over(mine, shared)
    assert found.groups["g"].rule == "alone"
    assert found.groups["h"].members == ("a", "b")
    assert (found.server, found.queue) == (mine.server, mine.queue)


def test_without_a_shared_one_all_is_as_it_was() -> None:
    mine = load(None, {})
    assert in_force(mine, None) is mine
    assert over(mine.settings, settings({})) == mine.settings


def test_every_value_says_where_it_comes_from() -> None:
    mine = load_text("models: {m: {source: mine/m:q, ttl: 1}}\ndefaults: {parallel: 2}", Path("/f.yaml"), {})
    text = (
        "defaults: {max_seconds: 9}\nmodels:\n  a: {source: owner/repo:q, ttl: 5}\n  m: {source: other/m:q}\n"
        "groups: {g: {members: [a]}}"
    )
    shared: Shared = shared_of(Config(7, "one", 0.0, text))
    found = {one.key: (one.origin, one.place) for one in shown(in_force(mine, shared), {})}
    assert found["models.m.ttl"] == ("file", "/f.yaml:1:37")
    assert found["models.a.ttl"] == ("cluster", "version 7:3:34")
    assert found["models.a.max_seconds"] == ("defaults", "version 7:1:25")
    assert found["models.a.parallel"] == ("defaults", "/f.yaml:2:22")
    assert found["defaults.max_seconds"] == ("cluster", "version 7:1:25")
    assert found["defaults.parallel"][0] == "file"
    assert found["groups.g.members"][0] == "cluster"
    assert found["groups.g.rule"][0] == "default"
    assert found["server.port"] == ("default", "")
