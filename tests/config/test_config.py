"""Finding, reading and refusing configuration files; the example file is one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.config import Settings, find_config, load_settings
from supervisor.config.settings import ModelOptions, ModelSettings
from supervisor.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


def load(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "supervisor.yaml"
    path.write_text(text)
    return load_settings(path, env or {})


def test_the_example_is_valid_and_shows_every_setting() -> None:
    settings = load_settings(EXAMPLE, {})
    shown = settings.models["my-model"].model_fields_set
    assert shown == set(ModelSettings.model_fields)
    assert settings.server.model_fields_set == set(type(settings.server).model_fields)
    assert settings.engine.model_fields_set == set(type(settings.engine).model_fields)
    assert settings.devices.model_fields_set == set(type(settings.devices).model_fields)


def test_the_example_shows_the_defaults() -> None:
    settings = load_settings(EXAMPLE, {})
    assert settings.server == Settings().server
    assert settings.engine == Settings().engine
    assert settings.devices == Settings().devices


def test_no_file_means_defaults() -> None:
    assert load_settings(None, {}) == Settings()
    assert ModelOptions().embeddings == "auto"


def test_model_files_are_relative_to_the_configuration(tmp_path: Path) -> None:
    settings = load(tmp_path, "models: {m: {file: sub/m.gguf}}")
    assert settings.models["m"].file == str(tmp_path / "sub" / "m.gguf")


def test_the_key_of_the_environment_is_added(tmp_path: Path) -> None:
    text = "server: {api_keys: [from-the-file]}"
    settings = load(tmp_path, text, {"SUPERVISOR_API_KEY": "from-the-environment"})
    assert settings.server.api_keys == ("from-the-file", "from-the-environment")
    alone = load_settings(None, {"SUPERVISOR_API_KEY": "from-the-environment"})
    assert alone.server.api_keys == ("from-the-environment",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("server: {prot: 1}", "server.prot"),
        ("server: {port: 99999}", "server.port"),
        ("models: {m: {ctx_size: 5}}", "models.m.file"),
        ("models: {m: {file: a, embeddings: maybe}}", "models.m.embeddings"),
        ("server: {api_keys: [short]}", "server.api_keys.0"),
        ("- a list", "mapping at its top level"),
        ("server: [", "not valid YAML"),
        ("server: 5", "server"),
        ("devices: {rpc: [no-port]}", "devices.rpc.0"),
        ("devices: {reserve_mib: {CUDA0: -1}}", "devices.reserve_mib.CUDA0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=r"supervisor\.yaml") as caught:
        load(tmp_path, text, {"SUPERVISOR_API_KEY": "a-long-enough-key"})
    assert told in caught.value.message


def test_the_search_order(tmp_path: Path) -> None:
    here, user, named = tmp_path / "here", tmp_path / "user", tmp_path / "named.yaml"
    for folder in (here, user):
        folder.mkdir()
    assert find_config(None, {}, here, user) is None
    (user / "supervisor.yaml").touch()
    assert find_config(None, {}, here, user) == user / "supervisor.yaml"
    (here / "supervisor.yaml").touch(mode=0o644)
    assert find_config(None, {}, here, user) == here / "supervisor.yaml"
    named.touch()
    assert find_config(None, {"SUPERVISOR_CONFIG": str(named)}, here, user) == named
    assert find_config(str(EXAMPLE), {"SUPERVISOR_CONFIG": str(named)}, here, user) == EXAMPLE


def test_a_file_that_others_can_write_is_not_taken_from_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "supervisor.yaml").touch()
    (tmp_path / "supervisor.yaml").chmod(0o666)
    assert find_config(None, {}, tmp_path, tmp_path / "none") is None


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        find_config(str(tmp_path / "absent.yaml"), {}, tmp_path, tmp_path)
