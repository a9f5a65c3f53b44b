"""`config` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def test_a_file_is_made_of_what_folders_and_caches_hold(cli: Cli) -> None:
    for name in ("shelf/a.gguf", "shelf/b/b-Q4.gguf", "shelf/b/mmproj-b.gguf"):
        touch(cli.folder / name)
    for cache in (".cache/llama.cpp/a.gguf", ".cache/huggingface/hub/models--o--Repo/snapshots/1/c-Q8.gguf"):
        touch(cli.folder / cache)
    (cli.folder / "shelf" / "page.gguf").write_text("<html>")
    (cli.folder / "shelf" / "gone.gguf").symlink_to("nowhere")
    done = cli("config", "init", "--models-dir", "shelf", "-o", "supervisor.yaml")
    assert done.code == 0, done.err
    assert sorted(Path(line.split()[2]).name for line in done.err.splitlines() if "left out" in line) == [
        *("gone.gguf", "page.gguf"),
    ]
    checked = cli("config", "check", "--json").json()
    assert checked["models"] == ["a", "b", "c-Q8", "a-2", "demo"]
    shown = {row["key"]: row for row in cli("config", "show", "--json").json()["values"]}
    assert shown["models.b.mmproj"]["value"] == str(cli.folder / "shelf/b/mmproj-b.gguf")
    again = cli("config", "init", "-o", "supervisor.yaml")
    assert again.code == 2
    assert "--force" in again.err
    assert "is not a folder" in cli("config", "init", "--models-dir", "absent").err
    nowhere = cli("config", "init", "--num-models", "1", "-o", "absent/file.yaml")
    assert (nowhere.code, "cannot be written" in nowhere.err) == (2, True)
    assert "is a folder" in cli("config", "check", "shelf").err


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")


def test_a_template_is_valid(cli: Cli) -> None:
    (cli.folder / "supervisor.yaml").write_text(cli("config", "init", "--num-models", "3").out)
    assert cli("config", "check").out.endswith("ok; models: model-1, model-2, model-3, demo\n")
    assert cli("config", "init", "--num-models", "3", "--models-dir", ".").code == 2


def test_check_says_where_and_what(cli: Cli) -> None:
    (cli.folder / "bad.yaml").write_text("server:\n  prot: 1\nmodels:\n  m: {file: x, replicas: 0}\n")
    done = cli("config", "check", "bad.yaml")
    assert done.code == 1
    assert "bad.yaml:2:3: server.prot: unknown key; did you mean port?" in done.err
    assert "bad.yaml:4:26: models.m.replicas: must be a number from 1 to 256, or MIN..MAX" in done.err
    found = cli("config", "check", "bad.yaml", "--json")
    assert found.code == 1
    assert [(one["key"], one["line"], one["column"]) for one in found.json()["faults"]] == [
        ("server.prot", 2, 3),
        ("models.m.replicas", 4, 26),
    ]
    assert cli("config", "check", "none.yaml").code == 1


def test_what_serve_refuses_check_refuses_and_a_reload_too(cli: Cli) -> None:
    """One function decides; `serve` would not even begin to listen."""
    (cli.folder / "open.yaml").write_text("server: {host: 0.0.0.0}\n")
    checked = cli("config", "check", "open.yaml")
    served = cli("serve", "--config", "open.yaml", "--port", "0")
    assert (checked.code, served.code) == (1, 1)
    for done in (checked, served):
        assert "open.yaml:1:16: server.host: 0.0.0.0 can be reached from other machines: set api_keys" in done.err
    assert cli("config", "check", "open.yaml", "--insecure").code == 0
    assert cli("config", "show", "--config", "open.yaml").code == 0, "nobody listens"
    cli.env["SUPERVISOR_API_KEY"] = "a-secret-key"
    assert cli("config", "check", "open.yaml").code == 0


def test_a_file_of_another_program_is_said_to_be_one(cli: Cli) -> None:
    (cli.folder / "swap.yaml").write_text("startPort: 10001\nmodels: {m: {cmd: llama-server -m /x.gguf}}\n")
    done = cli("config", "check", "swap.yaml")
    assert done.code == 1
    assert "llama-swap" in done.err
    assert "config import" in done.err
    assert "unknown key" not in done.err
    (cli.folder / "models.ini").write_text("[m]\nmodel = /x.gguf\n")
    assert "config import" in cli("config", "check", "models.ini").err


def test_check_warns_of_files_that_are_not_there(cli: Cli) -> None:
    (cli.folder / "here.gguf").touch()
    text = "models:\n  a: {file: here.gguf}\n  b: {file: gone.gguf}\n  c: {file: here.gguf, mmproj: none.gguf}\n"
    (cli.folder / "c.yaml").write_text(text + "  d: {source: o/r:Q4_K_M}\n")
    done = cli("config", "check", "c.yaml")
    assert done.code == 0
    assert done.err.splitlines() == [
        f"warning: models.b: {cli.folder}/gone.gguf does not exist.",
        f"warning: models.c: {cli.folder}/none.gguf does not exist.",
    ]
    found = cli("config", "check", "c.yaml", "--json").json()
    assert (found["ok"], [one["key"] for one in found["warnings"]]) == (True, ["models.b", "models.c"])


def test_check_tells_of_options_that_the_engine_in_use_does_not_have(cli: Cli) -> None:
    """As a remark: another engine may come before the model is loaded."""
    old = cli.folder / "llama-server"
    flags = "-m, --model FNAME  path\n-c, --ctx-size N  size\n-fa, --flash-attn  on"
    old.write_text(f"""#!/bin/sh
case "$1" in --version) echo 'version: 1 (abc)';; --help) printf '%s\\n' '{flags}';; *) exit 1;; esac
""")
    old.chmod(0o755)
    (cli.folder / "here.gguf").touch()
    given = "ctx_size: 512, flash_attn: on, cache_type_k: q8_0, cpu_moe: true, extra_args: [--brand-new, x]"
    (cli.folder / "c.yaml").write_text(f"models:\n  a: {{file: here.gguf, {given}}}\n  b: {{file: here.gguf}}\n")
    assert cli("config", "check", "c.yaml").err == ""
    cli.env["SUPERVISOR_LLAMA_SERVER"] = str(old)
    found = cli("config", "check", "c.yaml", "--json")
    assert (found.code, found.json()["ok"]) == (0, True)
    keys = [one["key"] for one in found.json()["warnings"]]
    assert sorted(keys) == ["models.a.cache_type_k", "models.a.cpu_moe", "models.a.extra_args"]
    told = cli("config", "check", "c.yaml")
    assert told.code == 0
    assert "warning: models.a.cpu_moe: this llama-server has no option --cpu-moe" in told.err
    assert str(old) in told.err
    old.write_text("#!/bin/sh\nexit 1\n")
    assert (cli("config", "check", "c.yaml").code, cli("config", "check", "c.yaml").err) == (0, "")


def test_our_own_file_is_not_imported(cli: Cli) -> None:
    (cli.folder / "mine.yaml").write_text("macros: {a: b}\nmodels: {m: {file: /x.gguf}}\n")
    done = cli("config", "import", "mine.yaml")
    assert (done.code, "already" in done.err, done.out) == (1, True, "")


def test_a_file_without_end_is_not_imported(cli: Cli) -> None:
    done = cli("config", "import", "/dev/zero")
    assert (done.code, "larger than 1 MiB" in done.err, done.out) == (2, True, "")


def test_show_says_where_each_value_comes_from(cli: Cli) -> None:
    text = "server: {port: 90}\ndefaults: {ttl: 5, env: {HF_TOKEN: s3cret}}\nmodels:\n  m:\n    file: /x.gguf\n"
    (cli.folder / "c.yaml").write_text(text)
    cli.env["SUPERVISOR_API_KEY"] = "a-secret-key"
    done = cli("config", "show", "--config", "c.yaml", "--json")
    shown = {row["key"]: (row["value"], row["from"], row["place"]) for row in done.json()["values"]}
    place = str(cli.folder / "c.yaml")
    assert shown["server.port"] == (90, "file", f"{place}:1:16")
    assert shown["server.host"] == ("127.0.0.1", "default", None)
    assert shown["server.api_keys"] == (["(hidden)"], "environment", "SUPERVISOR_API_KEY")
    assert shown["models.m.file"] == ("/x.gguf", "file", f"{place}:5:11")
    assert shown["models.m.ttl"] == (5, "defaults", f"{place}:2:17")
    assert "models.m.pin" not in shown
    assert "s3cret" not in done.out + cli("config", "show", "--config", "c.yaml").out
    everything = cli("config", "show", "--config", "c.yaml", "--all")
    assert "models.m.pin" in everything.out


def test_the_schema_knows_every_key_of_the_example(cli: Cli) -> None:
    schema = cli("config", "schema").json()
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"macros", "models", "defaults", "groups", "models_dir", "queue"} <= set(schema["properties"])
    port = schema["$defs"]["ServerSettings"]["properties"]["port"]
    assert {"type": "string", "pattern": r"\$\{[^{}]+\}"} in port["anyOf"]
    assert port["default"] == 8686
    assert schema["$defs"]["ServerSettings"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("swap.yaml", "models: {m: {cmd: llama-server -m /x.gguf -c 512 --port 1}}\nlogLevel: info\n"),
        ("preset.ini", "[m]\nmodel = /x.gguf\nctx-size = 512\nstop-timeout = 3\n"),
    ],
)
def test_import(cli: Cli, name: str, text: str) -> None:
    (cli.folder / name).write_text(text)
    done = cli("config", "import", name)
    assert done.code == 0
    assert "not carried over: " in done.err
    assert "# Not carried over: " in done.out
    as_json = json.loads(cli("config", "import", name, "--json", "-o", "supervisor.yaml").out)
    assert as_json["settings"]["models"]["m"] == {"file": "/x.gguf", "ctx_size": 512}
    assert cli("config", "check").code == 0
    assert cli("config", "import", "missing.yaml").code == 2
