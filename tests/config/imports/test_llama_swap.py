"""llama-swap's config.yaml → ours, and what is said of the rest."""

from __future__ import annotations

import shlex
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from supervisor.config.document import read_document, to_yaml
from supervisor.config.imports import Carried, from_llama_swap, from_preset
from supervisor.config.load import load_settings
from supervisor.config.options import launch_options
from supervisor.config.write import as_text
from supervisor.core.plan import Resident
from supervisor.core.schedule import barred_by
from supervisor.errors import ConfigError
from supervisor.models.configured import configured_models

CONFIG = """
healthCheckTimeout: 300
globalTTL: 600
unloadTimeout: 20
apiKeys: [short, long-enough-key, "${env.A_KEY}"]
macros:
  base: /opt/llama-server --port ${PORT} -ngl 99
  ctx: 8192
models:
  qwen:
    cmd: |
      # a comment
      ${base} -m /models/${MODEL_ID}.gguf \\
        -c ${ctx} --jinja -fa on --temp 0.6 -ot "exps=CPU" --chat-template-kwargs '{"enable_thinking": false}'
    aliases: [gpt, {id: gpt-4o-mini, unlisted: true}]
    env: ["CUDA_VISIBLE_DEVICES=0", "LLAMA_ARG_CTX_SIZE=1", "HF_TOKEN=hf_s3cret", "A_KEY=${env.A_KEY}", novalue]
    ttl: 0
    name: Qwen
    filters: {stripParams: "temperature, model", setParams: {top_p: 0.9}, setParamsByID: {x: {}}}
    concurrencyLimit: 3
  emb:
    cmd: ${base} -m ${env.HOME}/e.gguf --embeddings --no-mmap --api-key x
    ttl: 60
  vllm: {cmd: docker run x}
groups:
  g1: {members: [qwen]}
  g2: {persistent: true, members: [emb]}
  g3: {members: [vllm]}
routing: {scheduler: {settings: {fifo: {priority: {qwen: 100}}}}}
hooks: {on_startup: {preload: [qwen, zz, [a], {b: 1}]}}
"""


def imported() -> Carried:
    return from_llama_swap(CONFIG)


def test_what_has_a_counterpart_is_carried() -> None:
    assert imported().data == {
        "server": {"api_keys": ["${env.A_KEY}"]},
        "defaults": {"ttl": 600},
        "engine": {"stop_timeout": 20, "path": "/opt/llama-server"},
        "models": {
            "qwen": {
                "file": "/models/qwen.gguf",
                "n_gpu_layers": 99,
                "ctx_size": 8192,
                "jinja": True,
                "flash_attn": "on",
                "override_tensor": ["exps=CPU"],
                "chat_template_kwargs": {"enable_thinking": False},
                "extra_args": ["--temp", "0.6"],
                "aliases": ["gpt", "gpt-4o-mini"],
                "env": {"CUDA_VISIBLE_DEVICES": "0", "HF_TOKEN": "${env.HF_TOKEN:-}", "A_KEY": "${env.A_KEY}"},
                "ttl": None,
                "filters": {"strip": ["temperature"], "set": {"top_p": 0.9}},
                "concurrency": 3,
                "preload": True,
                "priority": 30,
            },
            "emb": {
                "file": "${env.HOME}/e.gguf",
                "n_gpu_layers": 99,
                "embeddings": "on",
                "load_mode": "none",
                "ttl": 60,
                "pin": True,
            },
        },
    }


@pytest.mark.parametrize(("theirs", "ours"), [(100, 30), (31, 30), (30, 30), (-30, -30), (-31, -30), (-100, -30)])
def test_a_priority_is_carried_as_far_as_there_are_any(theirs: int, ours: int) -> None:
    fifo = f"{{fifo: {{priority: {{a: {theirs}}}}}}}"
    text = f"models: {{a: {{cmd: llama-server -m x.gguf}}}}\nrouting: {{scheduler: {{settings: {fifo}}}}}"
    found: Any = from_llama_swap(text).data
    assert found["models"]["a"]["priority"] == ours


@pytest.mark.parametrize(("deep", "left"), [(10, False), (11, True)])
def test_macros_of_macros_are_followed_ten_deep(deep: int, left: bool) -> None:
    macros = ", ".join(f"m{n}: '${{m{n - 1}}}'" for n in range(2, deep + 1))
    text = f"macros: {{m1: x.gguf, {macros}}}\nmodels: {{a: {{cmd: 'llama-server -m ${{m{deep}}}'}}}}"
    assert ("${m1}" in str(from_llama_swap(text))) is left


@pytest.mark.parametrize(
    "told",
    [
        "healthCheckTimeout",
        "apiKeys: 2 left out",
        "LLAMA_ARG_CTX_SIZE of env",
        "models.qwen: name",
        "setParamsByID",
        "--api-key is left out",
        "its command runs 'docker'",
        "groups.g3: none of its members is here",
        "groups.g2: its load unloads no other models here",
        "there is no model 'zz'",
    ],
)
def test_what_has_none_is_said(told: str) -> None:
    assert any(told in note for note in imported().notes)


def test_what_is_carried_and_what_is_nothing_here_is_not_complained_of() -> None:
    """Each key that has a counterpart, with something in it, and those of theirs that only they need."""
    found = from_llama_swap("""
startPort: 5800
macros: {m: /a.gguf}
globalTTL: 60
unloadTimeout: 20
apiKeys: ["${env.A_KEY}"]
models:
  a:
    cmd: llama-server -m ${m}
    macros: {n: 1}
    env: [X=1]
    aliases: [b]
    ttl: 5
    concurrencyLimit: 2
    filters: {stripParams: top_k}
    proxy: "http://127.0.0.1:${PORT}"
    checkEndpoint: /health
groups: {g: {members: [a]}}
hooks: {on_startup: {preload: [a]}}
routing: {router: {settings: {}}}
""")
    assert found.notes == []


def test_the_result_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.yaml"
    found = imported()
    path.write_text(as_text(found.data, found.notes))
    settings = load_settings(path, {"HOME": "/h", "A_KEY": "long-enough"})
    assert settings.models["emb"].file == "/h/e.gguf"
    assert launch_options(settings.models["qwen"]).flash_attn == "on"


@pytest.mark.parametrize(
    "text", ["models: 5", "models: {m: 5}", "groups: [1]", "apiKeys: x", "hooks: 1", 'models: {m: {cmd: "\'"}}', ""]
)
def test_odd_files_carry_nothing_and_do_not_fail(text: str) -> None:
    found: dict[str, Any] = from_llama_swap(text).data
    assert not found.get("models")


def test_a_file_that_is_no_yaml_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml:2:1: not valid YAML"):
        from_llama_swap("a: 1\n]", "x.yaml")


def models(*names: str) -> str:
    return "models:\n" + "".join(f"  {name}: {{cmd: llama-server -m /{name}.gguf}}\n" for name in names)


# The groups that llama-swap's own documentation explains, with models of llama-server in them
DOCUMENTED = (
    models("llama", "qwen", "a", "b", "c", "forever-1", "forever-2", "loose")
    + """
groups:
  as-without-groups: {swap: true, exclusive: true, members: [llama, qwen]}
  together: {swap: false, exclusive: false, members: [a, b, c]}
  forever: {persistent: true, swap: false, exclusive: false, members: [forever-1, forever-2]}
"""
)


def refused(data: dict[str, Any]) -> set[frozenset[str]]:
    """Pairs that are never loaded together, by our rules."""
    groups = data.get("groups", {}).values()
    assert all(group["rule"] == "exclusive" for group in groups)
    return {frozenset(pair) for group in groups for pair in combinations(group["members"], 2)}


def test_the_documented_groups_come_to_the_same() -> None:
    found = from_llama_swap(DOCUMENTED)
    alone, others = ["llama", "qwen"], ["a", "b", "c", "loose"]
    assert refused(found.data) == {
        frozenset(("llama", "qwen")),
        *(frozenset((one, other)) for one in alone for other in others),
    }
    known = found.models
    assert [name for name in known if known[name].get("pin")] == ["forever-1", "forever-2"]
    assert any("models of no group one at a time; here as many run as fit: loose" in note for note in found.notes)


def test_a_persistent_embedder_is_in_nobodys_way(tmp_path: Path) -> None:
    """It stays while the others take turns, each of which can be loaded beside it."""
    text = (
        models("embed", "big", "small")
        + """
groups:
  turns: {swap: true, exclusive: true, members: [big, small]}
  always: {persistent: true, swap: false, exclusive: false, members: [embed]}
"""
    )
    found = from_llama_swap(text)
    assert found.data["groups"] == {"turns": {"members": ["big", "small"], "rule": "exclusive"}}
    path = tmp_path / "supervisor.yaml"
    path.write_text(as_text(found.data, found.notes))
    entries = {entry.id: entry for entry in configured_models(load_settings(path, {}))}
    assert entries["embed"].policy.pinned
    policies = {name: entry.policy for name, entry in entries.items()}
    embedder = Resident(1, "embed", {"CPU": 1}, evictable=False)
    assert barred_by(policies.__getitem__, "big", [embedder]) == ()
    other = Resident(2, "small", {"CPU": 1}, evictable=True)
    assert barred_by(policies.__getitem__, "big", [embedder, other]) == (other,)


@pytest.mark.parametrize(
    ("groups", "expected", "pins"),
    [
        ("", [], []),
        ("g: {members: [a, b, c]}", ["abc"], []),
        ("g: {members: [a, b], swap: false}", ["ac", "bc"], []),
        ("g: {members: [a, b], exclusive: false}", ["ab"], []),
        ("g: {members: [a, b], swap: false, exclusive: false}", [], []),
        ("g: {members: [a], swap: false}\n  h: {members: [b, c], swap: false}", ["ab", "ac"], []),
        ("g: {members: [a, b], persistent: true}", ["ab"], []),
        ("g: {members: [a], persistent: true}\n  h: {members: [b]}", ["bc"], ["a"]),
        ("g: {members: [a, b], persistent: true, swap: false}\n  h: {members: [c]}", [], ["a", "b"]),
        ("g: {members: [x]}", [], []),
    ],
)
def test_groups_become_who_may_not_go_together(groups: str, expected: list[str], pins: list[str]) -> None:
    found = from_llama_swap(models("a", "b", "c") + f"groups:\n  {groups}\n")
    assert refused(found.data) == {frozenset(pair) for one in expected for pair in combinations(one, 2)}
    assert [name for name, one in found.models.items() if one.get("pin")] == pins


def test_groups_of_the_newer_place_count_too() -> None:
    text = models("a", "b") + "routing: {router: {settings: {groups: {g: {members: [a, b]}}}}}\n"
    assert from_llama_swap(text).data["groups"] == {"g": {"members": ["a", "b"], "rule": "exclusive"}}


SECRETS = """
apiKeys: [s3cret-one-of-many, s3cret]
models:
  m:
    cmd: llama-server -m /m.gguf --api-key s3cret --hf-token=s3cret --auth-token s3cret s3cret --jinja s3cret -c s3cret
    env: [HF_TOKEN=s3cret, OPENAI_API_KEY=s3cret, DB_PASSWORD=s3cret, s3cret, A_PAT=s3cret, COOKIES=s3cret,
      PGPASS=s3cret, "HTTPS_PROXY=http://me:s3cret@proxy:3128"]
    filters: {setParams: {api_key: s3cret, max_tokens: 100}}
  n: {cmd: "KEY=s3cret llama-server -m /n.gguf"}
"""


def test_no_secret_leaves_an_import() -> None:
    found = from_llama_swap(SECRETS)
    assert "s3cret" not in as_text(found.data, found.notes)
    assert "s3cret" not in str(found.notes) + str(found.data)
    preset = from_preset("[m]\nmodel = /x.gguf\napi-key = s3cret\nhf-token = s3cret\ns3cret\nctx-size = s3cret\n")
    assert "s3cret" not in str(preset.notes) + str(preset.data)


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\u2029"])
def test_what_is_not_carried_over_stays_a_comment(end: str) -> None:
    name = f"x{end}engine: {{path: /tmp/other}}{end}"
    found = from_llama_swap(to_yaml({"models": {name: {"cmd": "other"}, "m": {"cmd": "llama-server -m /m.gguf"}}}))
    assert "engine: {path: /tmp/other}" in found.notes[0]
    assert read_document(as_text(found.data, found.notes)).data == {"models": {"m": {"file": "/m.gguf"}}}


def test_macros_of_all_commands_together_are_bounded() -> None:
    one = f"llama-server -m /a.gguf --alias {'x' * 60_000}"
    models = "".join(f"  m{number}: {{cmd: '${{one}}'}}\n" for number in range(80))
    env = "".join(f"    - 'A{number}=${{one}}'\n" for number in range(80))
    for text in (f"models:\n{models}", f"models:\n  m:\n    cmd: llama-server -m /a.gguf\n    env:\n{env}"):
        with pytest.raises(ConfigError, match="characters"):
            from_llama_swap(f"macros: {{one: {one}}}\n{text}")
    few = "".join(models.splitlines(keepends=True)[:60])
    assert len(from_llama_swap(f"macros: {{one: {one}}}\nmodels:\n{few}").models) == 60


def test_macros_of_a_command_are_bounded() -> None:
    macros = "".join(f"  m{n}: {f'${{m{n - 1}}}' * 10}\n" for n in range(1, 9))
    with pytest.raises(ConfigError, match="more than 65,536 characters"):
        from_llama_swap(f"macros:\n  m0: xxxxxxxxxx\n{macros}models: {{m: {{cmd: 'llama-server ${{m8}}'}}}}\n")


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("models: {m: {file: /x.gguf}}", True),
        ("models: {m: {source: demo}}", True),
        ("models: {m: {ctx_size: 5}}\nserver: {port: 1}", True),
        ("server: {port: 1}", True),
        ("models_dir: /m", True),
        ("models: {m: {cmd: llama-server -m /x.gguf}}", False),
        ("models: {m: {cmd: llama-server -m /x.gguf}, n: {file: /x.gguf}}", False),
        ("server: {port: 1}\nmodels: {m: {cmd: llama-server -m /x.gguf}}", False),
        ("models: {m: {ttl: 5}}", False),
        ("groups: {g: {members: [a]}}", False),
        ("", False),
    ],
)
def test_our_own_file_is_known(text: str, ours: bool) -> None:
    if ours:
        with pytest.raises(ConfigError, match="already"):
            from_llama_swap(text)
    else:
        from_llama_swap(text)


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ("--no-mmap", {"load_mode": "none"}),
        ("--no-mmap --mlock", {"load_mode": "mlock"}),
        ("--mlock", {"load_mode": "mmap+mlock"}),
        ("--mmap --mlock", {"load_mode": "mmap+mlock"}),
        ("--mmap", {"load_mode": "mmap"}),
        ("-dio", {"load_mode": "dio"}),
        ("--direct-io", {"load_mode": "dio"}),
        ("-ts 3/1", {"tensor_split": [3, 1]}),
        ("-ts 3,1", {"tensor_split": [3, 1]}),
        ("-dev CUDA0,CUDA1", {"device": ["CUDA0", "CUDA1"]}),
        ("-dev RPC0[host:1/x]", {"device": ["RPC0[host:1/x]"]}),
        ("-dev none", {"device": []}),
        ("-ot 'blk/1=CPU,exps=CUDA0'", {"override_tensor": ["blk/1=CPU", "exps=CUDA0"]}),
        ("-c 8k", {"ctx_size": 8192}),
        ("-fa off", {"flash_attn": "off"}),
        ("-lm mlock", {"load_mode": "mlock"}),
        ("--embedding", {"embeddings": "on"}),
        ("-mm /p.gguf", {"mmproj": "/p.gguf"}),
        ("--mmproj-auto", {"mmproj_auto": True}),
        ("--no-mmproj", {"mmproj_auto": False}),
        ("--no-mmproj-auto", {"mmproj_auto": False}),
        ("--spec-type ngram-mod,draft-mtp", {"spec_type": ["ngram-mod", "draft-mtp"]}),
        ("--spec-default", {"spec_type": ["default"]}),
    ],
)
def test_arguments_of_a_command(arguments: str, settings: dict[str, Any]) -> None:
    found = from_llama_swap(f'models: {{m: {{cmd: "llama-server -m /m.gguf {arguments}"}}}}\n')
    assert found.models["m"] == {"file": "/m.gguf", **settings}
    assert found.notes == []


OTHERS = """
macros: {home: /opt/whisper}
models:
  whisper:
    cmd: ${home}/whisper-server -m ${home}/tiny.bin --port ${PORT}
    proxy: http://127.0.0.1:${PORT}
    checkEndpoint: /
    useModelName: whisper-1
    concurrencyLimit: 1
    ttl: 60
    env: [THREADS=2]
    aliases: [ears]
  vllm:
    cmd: docker run --name vllm-${PORT} -p ${PORT}:8000 vllm/vllm-openai --model x
    cmdStop: docker stop vllm-${PORT}
    checkEndpoint: none
  fixed:
    cmd: python -m server --port=9000
    proxy: http://localhost:9000
  elsewhere:
    cmd: ssh box
    proxy: http://box:9000
  silent:
    cmd: server --listen
"""


def test_other_programs_become_commands() -> None:
    found: Any = from_llama_swap(OTHERS)
    assert found.data["models"] == {
        "whisper": {
            "source": "command",
            "command": ["/opt/whisper/whisper-server", "-m", "/opt/whisper/tiny.bin", "--port", "${PORT}"],
            "ready": "/",
            "model_name": "whisper-1",
            "slots": 1,
            "ttl": 60,
            "env": {"THREADS": "2"},
            "aliases": ["ears"],
        },
        "vllm": {
            "source": "command",
            "command": shlex.split("docker run --name vllm-${PORT} -p ${PORT}:8000 vllm/vllm-openai --model x"),
            "stop": ["docker", "stop", "vllm-${PORT}"],
            "ready": "none",
        },
        "fixed": {"source": "command", "command": ["python", "-m", "server", "--port=${PORT}"]},
    }
    assert any("models.whisper: say with `memory`" in note for note in found.notes)
    assert any("models.elsewhere: its command runs 'ssh'" in note for note in found.notes)
    assert any("models.silent: its command runs 'server' and does not say its port" in note for note in found.notes)


def test_what_other_programs_become_is_a_valid_configuration(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.yaml"
    path.write_text(as_text(from_llama_swap(OTHERS).data))
    found = load_settings(path, {}).models["vllm"]
    assert found.model_dump()["command"][4:6] == ("-p", "${PORT}:8000")
