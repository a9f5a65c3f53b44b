"""Questions to the hub, ranges, refusals, retries, offline; against the local hub."""

from __future__ import annotations

import io
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.core.gguf import read_header
from supervisor.core.repository import parse_reference
from supervisor.errors import (
    GgufError,
    HubBusy,
    HubError,
    HubGated,
    HubTokenNeeded,
    HubUnreachable,
    RepositoryNotFound,
    SupervisorError,
)
from supervisor.hub.access import HubChoices, hub_access
from supervisor.hub.api import HubClient
from supervisor.hub.models import HubModels
from tests.hub.conftest import Client
from tests.support.daemon import wait_until
from tests.support.gguf_bytes import STRING, array, model, pair, tensor
from tests.support.hub import Fault, LocalHub

BIG = model(
    [
        pair("general.architecture", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, [f"token{number:06d}" * 2 for number in range(60_000)]),
    ],
    [tensor("token_embd.weight", (64, 64), 0, 0)],
    data=8 << 20,
)


def look(models: HubModels, text: str) -> None:
    reference = parse_reference(text)
    assert reference is not None
    models.look(reference)


def test_the_id_is_the_hubs_own(hub: LocalHub, client: Client) -> None:
    hub.add("Owner/Repo-GGUF", {"m-Q4_0.gguf": BIG})
    assert client.chosen("owner/repo-gguf:q4_0").reference == "Owner/Repo-GGUF:Q4_0"


def test_revisions_are_what_they_are_called(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": b"old"}, "v1")
    repo = hub.add("a/b", {"m-Q4_0.gguf": BIG}, "refs/pr/2")
    assert client.chosen("a/b@v1:Q4_0").repository.commit == repo.refs["v1"]
    assert client.chosen("a/b@refs/pr/2:Q4_0").repository.commit == repo.refs["refs/pr/2"]
    with pytest.raises(RepositoryNotFound, match="no revision 'v3'"):
        client.chosen("a/b@v3:Q4_0")


def test_a_header_is_read_from_a_part_of_the_file(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    models = client.models()
    chosen = client.chosen("a/b:Q4_0", models)
    found = models.model(chosen)
    assert found.header == read_header(io.BytesIO(BIG), len(BIG))
    fetched = hub.sent_bytes("/storage/")
    assert fetched < found.header.data_offset + (1 << 20) < len(BIG)
    assert client.models().model(chosen).header == found.header
    assert hub.sent_bytes("/storage/") == fetched, "a header is read once"


def test_little_is_fetched_that_no_header_has(hub: LocalHub, client: Client) -> None:
    """Long arrays of texts are asked for as far as they are likely to go, those of numbers are passed over."""
    count = 200_000
    pairs = [
        pair("general.architecture", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, ["x" * (4 + number // 40_000) for number in range(count)]),
        array("tokenizer.ggml.scores", 6, [0.0] * count),
        array("tokenizer.ggml.token_type", 5, [1] * count),
        array("tokenizer.ggml.merges", STRING, ["a b"] * count),
    ]
    data = model(pairs, [tensor("token_embd.weight", (64, 64), 0, 0)], data=24 << 20)
    hub.add("a/b", {"m-Q4_0.gguf": data})
    header = client.models().model(client.chosen("a/b:Q4_0")).header
    assert header == read_header(io.BytesIO(data), len(data))
    texts = header.data_offset - 2 * 4 * count
    assert hub.sent_bytes("/storage/") < texts + (2 << 20) < len(data) / 4
    assert len(hub.requests("/storage/")) <= 6


def test_reading_goes_on_where_it_broke_off(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    hub.spoil(Fault("/storage/", times=3, cut_after=100_000))
    found = client.models().model(client.chosen("a/b:Q4_0"))
    assert found.header == read_header(io.BytesIO(BIG), len(BIG))
    assert hub.sent_bytes("/storage/") < found.header.data_offset + (1 << 20)


def test_an_address_that_expires_is_asked_for_anew(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    models = client.models()
    chosen = client.chosen("a/b:Q4_0", models)
    models.model(chosen)
    assert len(hub.requests("/resolve/")) == 1
    assert len(hub.requests("/storage/")) > 1
    hub.add("a/c", {"m-Q4_0.gguf": BIG[:-1] + b"!"})
    other = client.chosen("a/c:Q4_0", models)
    first = hub.spoil(Fault("/storage/", times=1, cut_after=1 << 18))
    hub.spoil(Fault("/storage/", times=1, status=403))
    assert models.model(other).header == models.model(chosen).header
    assert first.times == 0
    assert len(hub.requests("/resolve/")) == 3


def test_a_storage_without_ranges_still_serves(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    hub.knows_ranges = False
    assert client.models().model(client.chosen("a/b:Q4_0")).header == read_header(io.BytesIO(BIG), len(BIG))


def test_the_token_goes_to_the_hub_and_not_to_the_storage(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG}).private = True
    with pytest.raises(RepositoryNotFound, match="HF_TOKEN"):
        client.chosen("a/b:Q4_0")
    models = client.models(HF_TOKEN=hub.token)
    with pytest.raises(RepositoryNotFound, match="or the token in use does not open it"):
        look(models, "a/c")
    models.model(client.chosen("a/b:Q4_0", models))
    assert {one.authorization for one in hub.requests("/storage/")} == {None}


def test_what_a_licence_or_a_token_keeps_closed_is_said(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG}).gated = True
    with pytest.raises(HubGated, match=rf"licence at {hub.url}/a/b and set HF_TOKEN"):
        client.models().model(client.chosen("a/b:Q4_0"))
    wrong = client.models(HF_TOKEN="hf_wrong")
    with pytest.raises(HubTokenNeeded, match="does not accept the token") as caught:
        look(wrong, "a/b")
    assert "hf_wrong" not in caught.value.message
    hub.spoil(Fault("/api/models", status=403))
    with pytest.raises(HubTokenNeeded, match="may not read a/b"):
        look(client.models(HF_TOKEN=hub.token), "a/b")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_hub_is_asked_again_after_the_time_it_wants(status: int, hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    hub.spoil(Fault("/api/models", times=2, status=status, headers={"Retry-After": "3"}))
    waited: list[float] = []
    with closing(HubClient(client.access(), waited.append)) as asking:
        assert asking.repository("a/b").id == "a/b"
    assert waited == [3.0, 3.0]


def test_who_waits_for_a_silent_hub_is_let_go_when_the_client_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(2) as threads:
        client = HubClient(hub_access({"HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}", "HOME": "/"}))
        asked = [threads.submit(client.repository, "a/b") for _ in range(2)]
        held = [silent.accept()[0] for _ in asked]  # both wait for an answer now, for 20 s and then again
        client.close()
        client.close()
        for one in asked:
            with pytest.raises(HubUnreachable, match="is closed"):
                one.result()
        with pytest.raises(HubUnreachable, match="is closed"):
            client.repository("a/b")
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()  # nobody has asked again
        for connection in held:
            connection.close()


def test_a_pause_between_two_attempts_ends_with_the_client(hub: LocalHub, client: Client) -> None:
    hub.spoil(Fault("/api/models", status=503, headers={"Retry-After": "29"}))
    asking = HubClient(client.access())
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(asking.repository, "a/b")
        wait_until(lambda: bool(hub.requests("/api/models")), "the first answer")
        asking.close()
        with pytest.raises(HubUnreachable, match="is closed"):
            asked.result()


def test_a_hub_that_stays_busy_is_left_alone(hub: LocalHub, client: Client) -> None:
    waited: list[float] = []
    hub.spoil(Fault("/api/models", status=503))
    with closing(HubClient(client.access(), waited.append)) as asking:
        with pytest.raises(HubBusy, match="answered 503"):
            asking.repository("a/b")
        assert waited == [0.5, 1.0, 2.0]
        hub.faults[0].headers = {"Retry-After": "3600"}
        with pytest.raises(HubBusy, match="wait 3600 s"):
            asking.repository("a/b")
    assert len(waited) == 3


def test_what_is_no_hub_is_said(hub: LocalHub, client: Client) -> None:
    hub.spoil(Fault("/api/models", status=200))
    with pytest.raises(HubError, match="does not speak like a hub"):
        look(client.models(), "a/b")


def test_what_is_no_model_is_found_before_any_download(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": b"<html>not a model</html>" * 100})
    with pytest.raises(GgufError, match=r"a/b/m-Q4_0.gguf: not a GGUF"):
        client.models().model(client.chosen("a/b:Q4_0"))


@pytest.mark.parametrize(
    ("env", "choices"),
    [
        ({"HF_HUB_OFFLINE": "1"}, None),
        ({}, HubChoices(offline=True)),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, None),
    ],
)
def test_without_a_hub_the_cache_has_to_do(
    env: dict[str, str], choices: HubChoices | None, hub: LocalHub, client: Client
) -> None:
    models = client.models(choices, **env)
    with pytest.raises(HubUnreachable, match="Nothing of a/b is in"):
        look(models, "a/b:Q4_0")
    snapshot = models.cache.folder / "models--a--b" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "m-Q4_0.gguf").write_bytes(BIG)
    reference = parse_reference("A/B:q4_0")
    assert reference is not None
    found = models.look(reference)
    assert found.note is not None
    assert found.candidates[0].name == "Q4_0"
    assert models.on_disk(reference) is not None
    assert models.model(found.choice(found.candidates[0])).header.architecture == "llama"
    assert hub.seen == []


def test_the_environment_is_the_clients_own_and_the_configuration_comes_first(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    plain = hub_access(home)
    assert (plain.endpoint, plain.token, plain.cache) == (
        "https://huggingface.co",
        None,
        tmp_path / ".cache" / "huggingface" / "hub",
    )
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text("hf_from_the_file\n")
    by_file = hub_access({**home, "HF_HOME": "~/hf", "HF_ENDPOINT": "http://mirror/"})
    assert (by_file.endpoint, by_file.token, by_file.cache) == (
        "http://mirror",
        "hf_from_the_file",
        tmp_path / "hf" / "hub",
    )
    chosen = hub_access(
        {**home, "HF_TOKEN": "hf_env", "HF_HUB_CACHE": "/elsewhere"},
        HubChoices("http://chosen", "hf_chosen", str(tmp_path / "c"), xet=False),
    )
    assert (chosen.endpoint, chosen.token, chosen.cache) == ("http://chosen", "hf_chosen", tmp_path / "c")
    assert "hf_chosen" not in repr(chosen)
    told = chosen.child_env()
    assert (told["HF_TOKEN"], told["HF_HUB_DISABLE_XET"], told["HF_HUB_CACHE"]) == (
        "hf_chosen",
        "1",
        str(tmp_path / "c"),
    )


def test_a_proxy_of_the_environment_is_used(hub: LocalHub, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", hub.url)  # the environment is the user's, not our code
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(SupervisorError):
        look(client.models(HF_ENDPOINT="http://hub.invalid"), "a/b")
    wait_until(lambda: bool(hub.requests("/api/models/a/b")), "the proxy was asked")
