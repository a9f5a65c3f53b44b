"""`plan`: on machines of profiles, beside a daemon's engines, and what it says where nothing can be planned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.evidence.subjects import write_subject
from tests.fakes.fake_daemon import FakeDaemon

GIB = 1 << 30
PARTS = ("weights", "kv", "recurrent", "compute", "output", "projector", "draft", "reserve")


def without_engine(folder: Path) -> Cli:
    """A command line that finds no engine."""
    cli = Cli(folder, PATH="/usr/bin:/bin", CUDA_VISIBLE_DEVICES="")
    for name in ("SUPERVISOR_LLAMA_SERVER", "LLAMA_SERVER_PATH"):
        cli.env.pop(name, None)
    return cli


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """Nothing is ever started by a plan, so that all tests may share one home."""
    found = without_engine(tmp_path_factory.mktemp("bare"))
    found.env["HF_HUB_OFFLINE"] = "1"
    return found


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Headers of well-known models; their data is a hole."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("llama-3.1-8b", "llama-3.3-70b", "qwen3-30b-a3b", "deepseek-v3"):
        write_subject(name, folder)
    return folder


def planned(cli: Cli, *arguments: str) -> Any:
    done = cli("plan", *arguments, "--json")
    assert done.code == 0, done.out + done.err
    return done.json()


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


def test_a_large_model_on_two_cards(bare: Cli, models: Path) -> None:
    found = planned(bare, str(models / "llama-3.3-70b.gguf"), "--devices", "2x24gb")
    assert found["devices"] == ["CUDA0", "CUDA1"]
    assert sum(found["tensor_split"]) == found["n_gpu_layers"] == 81
    for part in found["parts"]:
        assert part["total_bytes"] == sum(part[f"{name}_bytes"] for name in PARTS)
        assert part["left_bytes"] >= 0
    assert not found["learned"]
    given = found["arguments"]
    assert option(given, "--device") == "CUDA0,CUDA1"
    assert option(given, "--tensor-split") == ",".join(map(str, found["tensor_split"]))
    assert option(given, "--ctx-size") == str(found["ctx_size"])
    assert 4096 <= found["request_ctx"] <= found["wanted_ctx"] == 32768


def test_the_table_for_people(bare: Cli, models: Path) -> None:
    shown = bare("plan", str(models / "llama-3.1-8b.gguf"), "--devices", "2x24gb")
    assert (shown.code, shown.err) == (0, "")
    title, headers, card, host = shown.out.splitlines()[:4]
    assert title == "llama-3.1-8b on CUDA0"
    assert headers.split() == [
        *("DEVICE", "LAYERS", "WEIGHTS", "KV", "COMPUTE", "OUTPUT", "RESERVE", "TOTAL", "LEFT"),
    ]
    assert card.split()[:2] == ["CUDA0", "33"]
    assert host.split()[:2] == ["CPU", "-"]
    assert "tokens per request, KV cache in f16; wanted 32,768" in shown.out
    assert "- All 33 layers are on CUDA0." in shown.out
    assert "\nllama-server -m " in shown.out
    assert shown.out.rstrip().splitlines()[-1].count("--device CUDA0") == 1


def test_what_the_user_decides_is_kept(bare: Cli, models: Path) -> None:
    target = str(models / "llama-3.1-8b.gguf")
    chosen = ("--ctx-size", "16384", "--parallel", "2", "--no-kv-unified", "--device", "CUDA1,CUDA0", "-ts", "3,1")
    found = planned(bare, target, "--devices", "2x24gb", *chosen)
    assert (found["ctx_size"], found["request_ctx"], found["wanted_ctx"]) == (16384, 8192, 8192)
    assert found["devices"] == ["CUDA1", "CUDA0"]
    assert found["tensor_split"][0] > found["tensor_split"][1]
    shown = bare("plan", target, "--devices", "2x24gb", *chosen).out
    assert "8,192 tokens per request (16,384 for all slots)" in shown


def test_what_does_not_fit_says_how_much_is_missing_and_what_would_help(bare: Cli, models: Path) -> None:
    target = str(models / "qwen3-30b-a3b.gguf")
    shown = bare("plan", target, "--devices", "laptop-16gb")
    assert shown.code == 4
    assert "CPU: 16.7 GiB needed, 10.0 GiB free, 6.7 GiB missing" in shown.out
    assert "- A quantisation of " in shown.out
    found = bare("plan", target, "--devices", "laptop-16gb", "--json")
    assert (found.code, found.json()["fits"]) == (4, False)
    (short,) = found.json()["shortages"]
    assert short["missing_bytes"] == short["needed_bytes"] - short["usable_bytes"]
    hopeless = bare("plan", str(models / "deepseek-v3.gguf"), "--devices", "laptop-16gb")
    assert (hopeless.code, hopeless.out.count("\n- With weights mapped from the file")) == (4, 1)


@pytest.mark.parametrize("text", [
    "host: {total: 64 GiB}\ndevices: [{name: Vulkan0, total: 12 GiB, free: 11.5 GiB}]\n",
    '{"host": {"total": "64 GiB"}, "devices": [{"name": "Vulkan0", "total": "12 GiB", "free": 12348030976}]}',
])  # fmt: skip
def test_a_machine_of_ones_own(bare: Cli, models: Path, text: str) -> None:
    (bare.folder / "mine").write_text(text)
    found = planned(bare, str(models / "llama-3.1-8b.gguf"), "--devices", "mine")
    part = found["parts"][0]
    assert part["name"] == "Vulkan0"
    kept_back = 256 << 20  # docs/devices.md
    assert part["total_bytes"] + part["left_bytes"] == int(11.5 * GIB) - kept_back


def test_the_devices_of_another_machine(bare: Cli, models: Path) -> None:
    listed = bare("devices", "--json").json()
    worker = {"name": "RPC0", "backend": "rpc", "endpoint": "10.0.0.7:50052"}
    sizes = {"total_bytes": 48 * GIB, "free_bytes": 47 * GIB, "usable_bytes": 46 * GIB}
    again = {**worker, "name": "Vulkan0", "backend": "vulkan", **sizes, "usable_bytes": None}
    text = json.dumps({**listed, "devices": [{**worker, **sizes, "uuid": None, "processes": []}, again]})
    done = bare("plan", str(models / "llama-3.3-70b.gguf"), "--devices", "-", "--json", stdin=text)
    assert done.code == 0, done.out
    assert done.json()["devices"] == ["RPC0"]
    assert option(done.json()["arguments"], "--rpc") == "10.0.0.7:50052"
    same = bare("plan", "demo", "--devices", "-", "--json", stdin=json.dumps(listed)).json()
    host = same["parts"][-1]
    assert host["total_bytes"] + host["left_bytes"] == listed["host"]["usable_bytes"]


@pytest.mark.parametrize(("arguments", "code", "error", "told"), [
    (("demo", "--devices", "3x24gb"), 1, "profile_invalid", "there are 1x24gb, 1x80gb"),
    (("demo", "--devices", "./absent.yaml"), 1, "profile_invalid", "no file ./absent.yaml"),
    (("demo", "--devices", "misspelt.yaml"), 1, "profile_invalid", "no key totl; allowed"),
    (("demo", "--devices", "broken.yaml"), 1, "profile_invalid", "neither YAML nor JSON"),
    (("demo", "--devices", "binary"), 1, "profile_invalid", "neither YAML nor JSON"),
    (("demo", "--devices", "{models}/deepseek-v3.gguf"), 1, "profile_invalid", "too large"),
    (("demo", "--devices", "2x24gb", "--device", "CUDA7"), 1, "unknown_device", "this machine has: CUDA0, CUDA1"),
    (("demo", "--devices", "2x24gb", "-ctv", "q8_0", "-fa", "off"), 1, "quantized_v_needs_flash_attention", ""),
    (("demo", "--devices", "2x24gb", "--set", "nonsense=1"), 1, "invalid_request", "unknown key; docs/launch.md"),
    (("demo", "--devices", "2x24gb", "--set", "parallel=many"), 1, "invalid_request", "parallel: "),
    (("demo", "--devices", "2x24gb", "--extra-arg=--port"), 1, "invalid_request", "--port cannot be given"),
    (("./absent.gguf",), 1, "model_file_invalid", "does not exist"),
    (("nobody",), 1, "model_not_found", "Known models: demo"),
    (("owner/repo:Q4_K_M",), 1, "hub_unreachable", "Nothing of owner/repo is in"),
    (("demo", "--devices", "2x24gb", "--set", "ctx_sise=1"), 1, "invalid_request", "did you mean ctx_size?"),
    ((), 2, "usage", "TARGET"),
    (("demo", "--config", "absent.yaml"), 1, "config_invalid", "does not exist"),
    (("demo", "--url", "http://127.0.0.1:1"), 3, "daemon_unreachable", "No daemon answers"),
])  # fmt: skip
def test_what_is_wrong_is_said(
    bare: Cli, models: Path, arguments: tuple[str, ...], code: int, error: str, told: str
) -> None:
    (bare.folder / "misspelt.yaml").write_text("host: {total: 5 GiB}\ndevices: [{name: CUDA0, totl: 1 GiB}]\n")
    (bare.folder / "broken.yaml").write_text("devices: [")
    (bare.folder / "binary").write_bytes(b"\xff\xfe\x00")
    done = bare("plan", *(argument.format(models=models) for argument in arguments))
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.endswith(f"[{error}]\n")
    assert told in done.err


def test_without_a_daemon_and_an_engine_this_machine_is_looked_at(bare: Cli) -> None:
    done = bare("plan", "demo", "--json")
    assert done.code == 0, done.err
    found = done.json()
    assert found["parts"][-1]["name"] == "CPU"
    assert [problem["probe"] for problem in found["problems"]][:1] == ["engine"]
    assert "engine install" in bare("plan", "demo").err


@dataclass(frozen=True)
class Beside:
    """A command line, and a daemon that would have to stop an engine for the model."""

    cli: Cli
    daemon: FakeDaemon

    @property
    def asked(self) -> list[Any]:
        return self.daemon.called("/api/v1/plan")


@pytest.fixture
def beside(bare: Cli, models: Path, tmp_path: Path) -> Iterator[Beside]:
    found = planned(bare, str(models / "llama-3.1-8b.gguf"), "--devices", "1x24gb")
    found |= {"evict": [3], "evict_models": ["other"], "problems": [{"probe": "nvml", "message": "it hangs"}]}
    cli = without_engine(tmp_path)
    with FakeDaemon() as fake:
        fake.answers["/api/v1/plan"] = found
        fake.write_endpoint(cli.state)
        yield Beside(cli, fake)


def test_a_running_daemon_is_asked(beside: Beside) -> None:
    shown = beside.cli("plan", "./x.gguf", "-c", "4096", "--engine", "/elsewhere")
    assert beside.asked == [{"target": str(beside.cli.folder / "x.gguf"), "options": {"ctx_size": 4096}}]
    assert "must leave first: engine 3 (other)\n" in shown.out
    assert "nvml: it hangs" in shown.err
    assert "not used: --engine" in shown.err
    assert beside.cli("plan", "demo", "--json").json() == beside.daemon.answers["/api/v1/plan"]


def test_for_another_machine_no_daemon_is_asked(beside: Beside) -> None:
    assert planned(beside.cli, "demo", "--devices", "2x24gb")["devices"] == ["CUDA0"]
    assert beside.asked == []
