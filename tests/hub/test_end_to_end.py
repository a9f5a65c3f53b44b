"""`load owner/repo:quant` from a hub to a streamed answer of a real engine."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.cli.conftest import Cli
from tests.hub.conftest import SAID
from tests.support.daemon import wait_until
from tests.support.gguf_split import GgufSplit
from tests.support.hub import Fault, LocalHub
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.engine


@pytest.fixture
def cli(tmp_path: Path, engine_binary: Path, hub: LocalHub) -> Iterator[Cli]:
    """The command line with a scratch home and the local hub."""
    cli = Cli(tmp_path, SUPERVISOR_LLAMA_SERVER=str(engine_binary), **hub.environment(tmp_path / "hf"))
    try:
        yield cli
    finally:
        cli("stop")


def test_from_a_name_to_an_answer(cli: Cli, hub: LocalHub, talker: Path) -> None:
    hub.add("Some-One/Talker-GGUF", {"README.md": b"# card", "talker-Q4_K_M.gguf": talker, "talker-Q8_0.gguf": b"no"})
    loaded = cli("load", "some-one/talker-gguf:q4_k_m", "--port", "0", "--json")
    assert loaded.code == 0, loaded.err
    status = loaded.json()["status"]
    assert status["id"] == "Some-One/Talker-GGUF:Q4_K_M"
    assert status["source"] == "hub"
    assert not hub.requests("Q8_0", "GET")

    answer = cli("chat", "Some-One/Talker-GGUF:Q4_K_M", "-m", "Hello?")
    assert answer.out.strip() == SAID, answer.err

    [disk] = cli("models", "--json").json()["disk"]
    assert (disk["name"], disk["loaded"], disk["revisions"]) == ("Some-One/Talker-GGUF:Q4_K_M", True, ["main"])
    refused = cli("rm", "Some-One/Talker-GGUF:Q4_K_M", "--json")
    assert (refused.code, refused.json()["error"]["code"]) == (1, "model_in_use")

    assert cli("unload", "--all").code == 0
    begun = len(hub.seen)
    assert cli("load", "Some-One/Talker-GGUF:Q4_K_M").code == 0
    assert len(hub.seen) == begun, "what is on disk needs no network"
    assert cli("unload", "--all").code == 0
    removed = cli("rm", "Some-One/Talker-GGUF:Q4_K_M", "--json")
    assert removed.json()["freed_bytes"] == talker.stat().st_size
    assert cli("models", "--json").json()["disk"] == []


def test_from_the_name_of_a_split_model_to_a_streamed_answer(
    cli: Cli, hub: LocalHub, talker: Path, gguf_split: GgufSplit
) -> None:
    parts = gguf_split(talker, cli.folder, "talker-Q8_0", 5)
    assert len(parts) == 3
    hub.add("a/split", {"README.md": b"# card", **{f"Q8_0/{part.name}": part for part in parts}})
    loaded = cli("load", "a/split:q8_0", "--port", "0", "--json").json()
    question = {"model": loaded["model"], "stream": True, "messages": [{"role": "user", "content": "Hello?"}]}
    with httpx.stream("POST", f"{loaded['base_url']}/chat/completions", json=question, timeout=PATIENCE) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines]
    assert "".join(deltas) == SAID
    assert len(list(filter(None, deltas))) > 3, "piece by piece"
    [disk] = cli("models", "--json").json()["disk"]
    assert (disk["name"], disk["size_bytes"]) == ("a/split:Q8_0", sum(part.stat().st_size for part in parts))


def test_a_repository_without_a_quantisation_gives_the_best_that_fits(cli: Cli, hub: LocalHub, talker: Path) -> None:
    data = talker.read_bytes()
    hub.add("a/b", {"m-Q2_K.gguf": data, "m-Q8_0.gguf": data, "m-Q4_K_M.gguf": data})
    loaded = cli("load", "a/b", "--port", "0", "--json")
    assert loaded.code == 0, loaded.err
    status = loaded.json()["status"]
    assert status["id"] == "a/b:Q8_0"
    assert [(one["name"], one["chosen"]) for one in status["variants"]] == [
        ("Q8_0", True),
        ("Q4_K_M", False),
        ("Q2_K", False),
    ]
    assert cli("chat", "a/b", "-m", "Hello?").out.strip() == SAID
    again = cli("load", "a/b", "--json").json()
    assert again["status"]["id"] == "a/b:Q8_0"
    assert len([one for one in hub.requests("/storage/", "GET") if one.range is None]) == 1


def test_what_can_be_said_of_it_before_any_download(cli: Cli, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_K_M.gguf": talker, "m-Q8_0.gguf": talker})
    inspected = cli("inspect", "a/b:Q4_K_M", "--json").json()
    assert inspected["arch"] == "llama"
    estimated = cli("estimate", "a/b:Q4_K_M", "-c", "4096", "--json").json()
    assert estimated == cli("estimate", str(talker), "-c", "4096", "--json").json()
    planned = cli("plan", "a/b:Q8_0", "--json").json()
    assert planned["fits"]
    assert planned["model"] == "a/b:Q8_0"
    assert json.dumps(planned["variants"]) == "[]"
    assert not [one for one in hub.requests("/storage/", "GET") if one.range is None]
    assert cli("inspect", "a/b", "--json").err.count("Q4_K_M of 2 variants") == 1


def test_what_there_is_not_is_refused_with_what_there_is(cli: Cli, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_K_M.gguf": talker})
    hub.add("a/lost", {"m-Q4_K_M-00001-of-00002.gguf": talker})
    refused = cli("load", "a/b:Q4_K", "--port", "0", "--json")
    assert (refused.code, refused.json()["error"]["code"]) == (1, "variant_not_found")
    assert "Q4_K_M" in refused.json()["error"]["message"]
    assert cli("load", "a/none:Q4_K_M", "--json").json()["error"]["code"] == "repository_not_found"
    lost = cli("load", "a/lost:Q4_K_M", "--json").json()["error"]
    assert lost["code"] == "shard_missing"
    assert "00002-of-00002" in lost["message"]


@pytest.mark.parametrize("verb", ["load", "pull"])
def test_ctrl_c_ends_the_download_and_the_next_try_succeeds(verb: str, cli: Cli, hub: LocalHub, talker: Path) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": talker.read_bytes() + bytes(4 << 20)})
    assert cli("load", "demo", "--port", "0").code == 0
    slow = hub.spoil(Fault("/storage/", method="GET", rate=1e5))
    running = cli.start(verb, "a/b:Q4_0")
    wait_until(lambda: arrived(cli) > 0, "bytes arrive")
    [worker] = workers(cli)
    running.send_signal(signal.SIGINT)
    wait_until(lambda: running.poll() is not None and not psutil.pid_exists(worker), "command and download have ended")
    running.communicate()
    assert running.returncode == 130
    hub.faults.remove(slow)
    assert cli("pull", "a/b:Q4_0", "--json").json()["size_bytes"] == talker.stat().st_size + (4 << 20)
    assert cli("verify", "--json").json()["models"][0]["problems"] == []
    assert cli("load", "a/b:Q4_0").code == 0
    blob = Path(cli("models", "--json").json()["disk"][0]["path"]).resolve()
    blob.write_bytes(b"damaged")
    assert cli("verify", "a/b:Q4_0").code == 1


def arrived(cli: Cli) -> int:
    """Bytes of what is unfinished."""
    return sum(path.stat().st_size for path in (cli.folder / "hf").rglob("*.incomplete"))


def workers(cli: Cli) -> list[int]:
    """The pids of downloads that the daemon has begun."""
    daemon = psutil.Process(json.loads((cli.state / "endpoint.json").read_text())["pid"])
    found = []
    for child in daemon.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may end just now
            if any("hub.worker" in word for word in child.cmdline()):
                found.append(child.pid)
    return found
