"""Models with `source: command`: what a configuration may say of them, and what not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.config.load import load_settings
from supervisor.config.settings import ModelOptions
from supervisor.core.models.registry import ModelEntry
from supervisor.engines.command.options import CommandOptions
from supervisor.engines.kinds import service_of
from supervisor.errors import ConfigError, InvalidRequest
from supervisor.models.configured import configured_models
from supervisor.models.targets import with_options


def entry(folder: Path, text: str, before: str = "") -> ModelEntry:
    path = folder / "supervisor.yaml"
    path.write_text(f"{before}\nmodels: {{m: {{source: command, {text}}}}}")
    return configured_models(load_settings(path, {"WHERE": "/srv"})).find("m")


def own(folder: Path, text: str, before: str = "") -> CommandOptions:
    found = entry(folder, text, before).own
    assert isinstance(found, CommandOptions)
    return found


def test_what_is_said_reaches_the_entry(tmp_path: Path) -> None:
    found = own(
        tmp_path,
        'command: [run, "${env.WHERE}/m", "--at=${SOCKET}"], ready: none, ready_statuses: [204], model_name: x, '
        "apis: [/v1/audio/transcriptions, /images/generations], slots: 2, stop: [end, '${PID}'], "
        "memory: {CUDA0: 8GiB, CPU: 512}",
    )
    assert found.command == ("run", "/srv/m", "--at=${SOCKET}")
    assert (found.ready, found.ready_statuses, found.slots, found.stop) == ("none", (204,), 2, ("end", "${PID}"))
    assert found.said_bytes == {"CUDA0": 8 << 30, "CPU": 512 << 20}


def test_a_spelling_of_a_path_is_the_path(tmp_path: Path) -> None:
    model = entry(tmp_path, 'command: [run, "${PORT}"], apis: [/images/generations], model_name: x')
    assert service_of(model).apis == {"/v1/images/generations"}
    assert (service_of(model).model_name, service_of(model).plain) == ("x", True)


@pytest.mark.parametrize(
    ("program", "meant"), [("./run", "{}/run"), ("../run", "{}/../run"), ("run", "run"), ("/bin/run", "/bin/run")]
)
def test_a_relative_program_lies_beside_the_configuration(tmp_path: Path, program: str, meant: str) -> None:
    assert own(tmp_path, f'command: [{program}, "${{PORT}}"]').command[0] == meant.format(tmp_path)


def test_of_the_defaults_it_has_the_variables_alone(tmp_path: Path) -> None:
    model = entry(
        tmp_path, 'command: [run, "${PORT}"], env: {B: "2"}', "defaults: {ctx_size: 8k, env: {A: '1'}, ttl: 60}"
    )
    assert model.options.env == {"A": "1", "B": "2"}
    assert model.options.ctx_size is None
    assert model.policy.ttl == 60


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ttl: 5", "models.m: `command`: name the program to run"),
        ("command: []", "models.m.command: `command`: name the program to run"),
        ("command: [run]", "say in it where to listen"),
        ('command: [run, "${PORT}", "${SOCKET}"]', "one of them"),
        ('command: [run, "${PORT}"], ready: health', "models.m.ready: `ready`: must be a path"),
        ('command: [docker, run, "${PORT}"]', "`command`: a container outlives the command"),
        ('command: [/usr/bin/podman, run, "${PORT}"]', "say how it is ended with `stop`"),
        ('command: [run, "${PORT}"], apis: [/v1/nothing]', "models.m.apis: `apis`: '/v1/nothing' is no path"),
        ('command: [run, "${PORT}"], ctx_size: 8k', "models.m.ctx_size: means nothing to the engine of this model"),
        ('command: [run, "${PORT}"], file: x.gguf', "models.m.file"),
        ('command: [run, "${PORT}"], tool_calls: raw', "models.m.tool_calls: means nothing"),
        ('command: [run, "${PORT}"], slots: 0', "models.m.slots"),
        ('command: [run, "${PORT}"], memory: {CPU: -1}', "models.m.memory.CPU"),
        ('command: [run, "${PORT}"], ready_statuses: [99]', "models.m.ready_statuses.0"),
        ('command: "run ${PORT}"', "models.m.command"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        entry(tmp_path, text)
    assert told in caught.value.message


@pytest.mark.parametrize("name", ["command", "apis", "memory", "slots", "stop", "ready"])
def test_a_model_in_gguf_has_none_of_these(tmp_path: Path, name: str) -> None:
    values: dict[str, Any] = {"memory": "{CPU: 1}", "slots": "2", "ready": "/"}
    path = tmp_path / "supervisor.yaml"
    path.write_text(f"models: {{m: {{file: m.gguf, {name}: {values.get(name, '[x]')}}}}}")
    with pytest.raises(ConfigError, match=rf"models\.m\.{name}: means nothing to the engine of this model"):
        load_settings(path, {})


def test_no_macro_is_called_like_a_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"macros\.PORT"):
        entry(tmp_path, 'command: [run, "${PORT}"]', "macros: {PORT: 5}")


def test_a_client_gives_it_no_options(tmp_path: Path) -> None:
    model = entry(tmp_path, 'command: [run, "${PORT}"]')
    assert with_options(model, ModelOptions()) == model
    with pytest.raises(InvalidRequest, match="ctx_size"):
        with_options(model, ModelOptions.model_validate({"ctx_size": 4096}))
