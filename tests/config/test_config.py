"""Finding, reading and refusing configuration files; the example file is one of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.config import Settings, find_config, load_settings
from supervisor.config.load import Start, passed_over
from supervisor.config.load import load as read
from supervisor.config.management import Management
from supervisor.config.options import launch_options
from supervisor.config.settings import ModelOptions, ModelSettings
from supervisor.core.options import LaunchOptions, LoraAdapter, options_of
from supervisor.core.schedule import SchedulerLimits
from supervisor.engines.command.options import CommandOptions
from supervisor.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


def load(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "supervisor.yaml"
    path.write_text(text)
    return load_settings(path, env or {})


SECTIONS = ("server", "engine", "hub", "devices", "context", "placement", "queue")


def test_the_example_is_valid_and_shows_every_setting() -> None:
    settings = load_settings(EXAMPLE, {})
    assert settings.model_fields_set == set(Settings.model_fields)
    of_commands = {row.name for row in options_of(CommandOptions)}
    assert settings.models["my-model"].model_fields_set == set(ModelSettings.model_fields) - of_commands
    assert settings.models["my-command"].model_fields_set == of_commands | {"source"}
    for section in (*(getattr(settings, name) for name in SECTIONS), settings.groups["large"]):
        assert section.model_fields_set == set(type(section).model_fields)


def test_the_example_shows_the_defaults() -> None:
    settings = load_settings(EXAMPLE, {})
    for name in SECTIONS:
        assert getattr(settings, name) == getattr(Settings(), name)
    assert settings.defaults == Settings().defaults
    assert settings.models_dir is None


def test_no_file_means_defaults() -> None:
    assert load_settings(None, {}) == Settings()
    assert launch_options(ModelOptions()).embeddings == "auto"


def test_limits_reach_the_scheduler(tmp_path: Path) -> None:
    text = "server: {drain: 2}\nqueue: {max_waiting_model: 3, max_waiting: 4, max_swap_wait: 0, max_linger: 5}"
    found = load(tmp_path, text).limits()
    assert found == SchedulerLimits(max_waiting_model=3, max_waiting=4, max_swap_wait=0, max_linger=5, drain=2)
    assert Settings().limits() == SchedulerLimits()


def test_an_empty_section_has_its_defaults(tmp_path: Path) -> None:
    settings = load(tmp_path, "server:\nmodels_dir: /m\nmodels:\n  a:\n", {"SUPERVISOR_API_KEY": "a-long-enough-key"})
    assert settings.server.port == Settings().server.port
    assert settings.models["a"] == ModelSettings()


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("models: {a: {file: x, source: demo}}", "1:14", "both name the model"),
        ("models: {a: {source: foo}}", "1:22", "./foo?"),
        ("models: {a: {ctx_size: 512}}", "1:10", "name the model's `source` or `file`"),
        ("models:\n  a: {file: x}\n  b: {file: y, aliases: [c, a]}", "3:29", "'a' already names another model"),
        ("models: {a: {file: x, aliases: [demo]}}", "1:33", "built-in"),
        ('models: {" ": {file: x}}', "1:10", "printable"),
        ("models: {a: {file: x, extra_args: [--port, '1']}}", "1:36", "--port cannot be given"),
        ("models: {a: {file: x, env: {LLAMA_ARG_X: '1'}}}", "1:29", "LLAMA_ARG_X cannot be set"),
        ("models: {a: {file: x, filters: {strip: [model]}}}", "1:40", "model is not a parameter"),
        ("models: {a: {file: x, filters: {set: {top_p: 7}}}}", "1:38", "`top_p` must be a number from 0 to 1; it is 7"),
        ("models: {a: {file: x, sampling: {top_p: 7}}}", "1:33", "`top_p` must be a number from 0 to 1; it is 7"),
        ("models: {a: {file: x, sampling: {stream: true}}}", "1:33", "`stream` is no parameter that has a default"),
        ("models: {alpha: {file: x}}\ngroups: {g: {members: [alhpa]}}", "2:24", "did you mean alpha?"),
        ("defaults: {env: {LLAMA_API_KEY: x}}", "1:18", "cannot be set"),
        ("server: {tls_cert: x}", "1:10", "goes with `tls_key`"),
        ("server: {allowed_origins: ['http://localhost:3000/']}", "1:28", "an origin such as"),
        ("server: {allowed_origins: ['localhost']}", "1:28", "an origin such as"),
        ("server: {fetch_allow: ['10.0.0.1/8']}", "1:24", "no network such as"),
    ],
)
def test_what_no_single_value_shows(tmp_path: Path, text: str, place: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert f"supervisor.yaml:{place}: " in caught.value.message
    assert told in caught.value.message


def test_a_fault_of_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"^SUPERVISOR_API_KEY: must have at least 8") as caught:
        load_settings(None, {"SUPERVISOR_API_KEY": "short"})
    assert "short" not in caught.value.message


def test_model_files_are_relative_to_the_configuration(tmp_path: Path) -> None:
    settings = load(tmp_path, "models: {m: {file: sub/m.gguf}}")
    assert settings.models["m"].file == str(tmp_path / "sub" / "m.gguf")


def test_so_are_all_other_files(tmp_path: Path) -> None:
    text = """models: {m: {file: m.gguf, mmproj: p.gguf, spec_draft_model: /abs/d.gguf, chat_template_file: t.jinja,
      slot_save_path: slots, lora: [{path: a.gguf}, {path: b.gguf, scale: 0.5}]}}"""
    model = launch_options(load(tmp_path, text).models["m"])
    assert (model.mmproj, model.spec_draft_model) == (str(tmp_path / "p.gguf"), "/abs/d.gguf")
    assert (model.chat_template_file, model.slot_save_path) == (str(tmp_path / "t.jinja"), str(tmp_path / "slots"))
    expected = (LoraAdapter(str(tmp_path / "a.gguf")), LoraAdapter(str(tmp_path / "b.gguf"), 0.5))
    assert model.lora == expected


def test_the_settings_are_the_launch_options() -> None:
    """One list of options, of which clients get all that do not name things of the machine."""
    rows = options_of(LaunchOptions)
    every = ModelSettings.model_fields.keys() - {"source", "file", "aliases"} - Management.model_fields.keys()
    assert every == {row.name for row in rows} | {row.name for row in options_of(CommandOptions)}
    assert ModelOptions.model_fields.keys() == {row.name for row in rows if row.client}
    assert launch_options(ModelOptions()) == LaunchOptions()


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
        ("models: {m: {ctx_size: 5}}", "models.m: name the model's `source` or `file`"),
        ("hub: {endpoint: ftp://x}", "hub.endpoint"),
        ("models: {m: {file: a, embeddings: maybe}}", "models.m.embeddings"),
        ("models: {m: {file: a, cache_type_k: q3}}", "models.m.cache_type_k"),
        ("models: {m: {file: a, rope_scale: .inf}}", "models.m.rope_scale"),
        ("models: {m: {file: a, tensor_split: [-1]}}", "models.m.tensor_split.0"),
        ("models: {m: {file: a, lora: [{scale: 1}]}}", "models.m.lora.0.path"),
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


def test_why_a_file_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "supervisor.yaml"
    assert "is gone" in (passed_over(file) or "")
    file.touch(mode=0o644)
    assert passed_over(file) is None
    file.chmod(0o666)
    assert f"chmod go-w {file}" in (passed_over(file) or "")


def test_a_relative_engine_lies_beside_the_configuration_not_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = tmp_path / "conf"
    here.mkdir()
    assert load(here, "engine: {path: ./bin/llama-server}").engine.path == str(here / "bin" / "llama-server")
    assert load(here, "engine: {path: b7-cpu}").engine.path == "b7-cpu"  # the name of an installed one
    given = read(here / "supervisor.yaml", {}, Start(engine="./bin/llama-server")).settings
    assert given.engine.path == str(tmp_path / "bin" / "llama-server")


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a link away")
def test_a_link_of_another_user_to_a_file_of_ours_is_not_taken(tmp_path: Path) -> None:
    file, link = tmp_path / "ours.yaml", tmp_path / "supervisor.yaml"
    file.touch(mode=0o600)
    link.symlink_to(file)
    assert find_config(None, {}, tmp_path, tmp_path / "none") == link
    os.lchown(link, 4711, 4711)
    assert find_config(None, {}, tmp_path, tmp_path / "none") is None


def test_a_file_that_is_exchanged_before_it_is_read_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "supervisor.yaml"
    file.touch(mode=0o600)
    found = find_config(None, {}, tmp_path, tmp_path / "none")
    assert found is not None
    file.chmod(0o666)
    file.write_text("server: {port: 1234}")
    with pytest.raises(ConfigError, match="written by others"):
        load_settings(found, {})
    assert load_settings(file, {}).server.port == 1234  # named, it may be anybody's
