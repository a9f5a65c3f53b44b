"""Downloads with the hub's real client in a process of its own, and everything that goes wrong with them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from supervisor.errors import DiskFull, DownloadFailed, HubBusy, HubError, HubGated, HubUnreachable, VerificationFailed
from supervisor.hub.download import Progress
from supervisor.hub.models import Chosen, HubModels
from supervisor.hub.partials import partial_of
from tests.hub.conftest import Client
from tests.support.hub import Fault, LocalHub
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.anyio

PIECE = os.urandom(1 << 20)
BIG = PIECE * 8
SHARDS = {f"m-Q8_0-{number:05d}-of-00003.gguf": bytes([number]) * 3_000_000 for number in (1, 2, 3)}


def unfinished(hub: LocalHub, client: Client) -> tuple[HubModels, Chosen, Path]:
    """A model of one file, BIG, and the place of what has arrived of it; nothing is there yet."""
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    models = client.models()
    place = partial_of(client.home / "hf/hub/models--a--b/blobs", hashlib.sha256(BIG).hexdigest())
    place.parent.mkdir(parents=True)
    return models, client.chosen("a/b:Q4_0", models), place


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - files and processes tell nobody
            await asyncio.sleep(0.01)


def children() -> list[psutil.Process]:
    """The workers that live."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any("supervisor.hub.worker" in word for word in child.cmdline()):
                found.append(child)
    return found


def leftovers(client: Client) -> list[Path]:
    return list((client.home / "hf").rglob("*.incomplete"))


def begun(client: Client, sha: str) -> bool:
    """Whether bytes of a content have arrived."""
    return any(path.name.startswith(sha) and path.stat().st_size for path in leftovers(client))


def blobs(client: Client) -> list[Path]:
    return [path for path in (client.home / "hf").rglob("blobs/*") if not path.name.endswith(".incomplete")]


def stored(hub: LocalHub, data: bytes) -> int:
    """How often a content was asked for."""
    return len(hub.requests(hashlib.sha256(data).hexdigest(), "GET"))


async def fetch(models: HubModels, chosen: Chosen, seen: list[Progress] | None = None) -> Path:
    local = await models.fetch(chosen, vision=True, watch=(seen if seen is not None else []).append)
    return local.path


async def test_progress_is_told_of_a_file_while_it_arrives(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    models, seen = client.models(), list[Progress]()
    chosen = client.chosen("a/b:Q4_0", models)
    hub.spoil(Fault("/storage/", rate=len(BIG) / 20))
    fetching = asyncio.create_task(fetch(models, chosen, seen))
    await eventually(lambda: seen and 0 < seen[0].done < len(BIG))
    assert list(seen[0].files) == ["m-Q4_0.gguf"]
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching


async def test_files_arrive_in_the_hubs_own_cache_with_progress(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG, "mmproj-F16.gguf": PIECE, "mmproj-BF16.gguf": b"other"})
    hub.spoil(Fault("/storage/", method="GET", rate=8e6))
    models, seen = client.models(), list[Progress]()
    told: list[tuple[int, float | None]] = []
    models.downloads.on_change = lambda: told.append((seen[0].done, seen[0].rate))
    local = await models.fetch(client.chosen("a/b:Q4_0", models), vision=True, watch=seen.append)
    assert local.path.read_bytes() == BIG
    assert local.projector is not None
    assert local.projector.read_bytes() == PIECE
    assert not hub.requests("mmproj-BF16", "GET")
    done = [count for count, _ in told]
    assert done == sorted(done)
    assert seen[0].done == seen[0].total == len(BIG) + len(PIECE)
    rates = [rate for _, rate in told if rate]
    assert any(4e6 < rate < 16e6 for rate in rates)
    assert (client.home / "hf/hub/models--a--b/refs/main").read_text() == seen_commit(hub)
    assert leftovers(client) == []


def seen_commit(hub: LocalHub) -> str:
    return hub.repositories["a/b"].refs["main"]


async def test_who_wants_the_same_shares_one_download(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    hold = hub.spoil(Fault("/storage/", method="GET", times=1, hold=threading.Event())).hold
    assert hold is not None
    models = client.models()
    chosen = client.chosen("a/b:Q4_0", models)
    first, second = (asyncio.ensure_future(fetch(models, chosen)) for _ in range(2))
    await eventually(lambda: hub.requests("/resolve/"))
    assert len(children()) == 1
    first.cancel()
    await asyncio.wait({first})
    assert len(children()) == 1, "one still waits"
    hold.set()
    assert (await second).read_bytes() == BIG
    assert stored(hub, BIG) == 1


async def test_nobody_downloads_for_one_who_could_not_be_told_of_it(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    hub.spoil(Fault("/storage/", method="GET", hold=threading.Event()))
    models = client.models()

    def watch(progress: Progress) -> None:
        raise LookupError("a bug")

    chosen = client.chosen("a/b:Q4_0", models)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(LookupError):
            await models.fetch(chosen, vision=True, watch=watch)
        await eventually(lambda: not children())
    assert not hub.requests("/storage/", "GET")


async def test_two_programs_at_once_end_with_one_file(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    hub.spoil(Fault("/storage/", method="GET", rate=2e7))
    one, other = client.models(), client.models()
    chosen = client.chosen("a/b:Q4_0", one)
    paths = await asyncio.gather(fetch(one, chosen), fetch(other, chosen))
    assert paths[0] == paths[1]
    assert paths[0].read_bytes() == BIG
    assert stored(hub, BIG) == 1
    assert len(blobs(client)) == 1


async def test_cancelling_ends_it_and_the_next_goes_on_with_the_rest(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", SHARDS)
    second = hashlib.sha256(SHARDS["m-Q8_0-00002-of-00003.gguf"]).hexdigest()
    hub.spoil(Fault(second, method="GET", times=1, rate=1e5))
    models = client.models()
    chosen = client.chosen("a/b:Q8_0", models)
    work = asyncio.ensure_future(fetch(models, chosen))
    await eventually(lambda: begun(client, second))
    work.cancel()
    await asyncio.wait({work})
    assert children() == []
    [partial] = leftovers(client)
    arrived = partial.stat().st_size
    assert arrived
    assert models.downloads.missing_bytes(chosen.repository, chosen.variant.parts) == 6_000_000 - arrived
    path = await fetch(client.models(), chosen)
    assert [path.with_name(name).read_bytes() for name in SHARDS] == list(SHARDS.values())
    assert [stored(hub, data) for data in SHARDS.values()] == [1, 2, 1]
    assert hub.requests(second, "GET")[-1].range == f"bytes={arrived}-"
    assert leftovers(client) == []


async def test_killed_again_and_again_it_still_gets_there_and_leaves_nothing(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", SHARDS)
    chosen = client.chosen("a/b:Q8_0")
    for sha in [hashlib.sha256(data).hexdigest() for data in SHARDS.values()][:2]:
        fault = hub.spoil(Fault(sha, method="GET", rate=1e5))
        work = asyncio.ensure_future(fetch(client.models(), chosen))
        await eventually(partial(begun, client, sha))
        [worker] = children()
        worker.kill()
        with pytest.raises(DownloadFailed, match="SIGKILL"):
            await work
        hub.faults.remove(fault)
    arrived = {path.name.partition(".")[0]: path.stat().st_size for path in leftovers(client)}
    assert arrived
    path = await fetch(client.models(), chosen)
    assert [path.with_name(name).read_bytes() for name in SHARDS] == list(SHARDS.values())
    assert leftovers(client) == []
    assert len(blobs(client)) == 3
    for sha, size in arrived.items():
        assert hub.requests(sha, "GET")[-1].range == f"bytes={size}-"


async def test_a_beginning_that_is_none_is_found_out(hub: LocalHub, client: Client) -> None:
    """What is too long, or is wrong by its sha256, is begun anew at once."""
    models, chosen, place = unfinished(hub, client)
    place.write_bytes(BIG + b"more")
    assert (await fetch(models, chosen)).read_bytes() == BIG
    assert await models.downloads.remove(models.scan()[0].files) == len(BIG)
    for wrong in (bytes(1 << 20), bytes(len(BIG))):
        place.write_bytes(wrong)
        assert (await fetch(models, chosen)).read_bytes() == BIG
        assert leftovers(client) == []
        assert await models.downloads.remove(models.scan()[0].files) == len(BIG)


async def test_what_the_hub_sends_wrong_after_a_wrong_beginning_is_removed(hub: LocalHub, client: Client) -> None:
    models, chosen, place = unfinished(hub, client)
    place.write_bytes(bytes(1 << 20))
    hub.spoil(Fault("/storage/", method="GET", corrupt=True))
    with pytest.raises(VerificationFailed, match="sha256"):
        await fetch(models, chosen)
    assert blobs(client) == leftovers(client) == []
    assert stored(hub, BIG) == 2


async def test_a_beginning_that_the_hub_does_not_take_is_removed(hub: LocalHub, client: Client) -> None:
    """Else every further try would meet the same refusal."""
    models, chosen, place = unfinished(hub, client)
    place.write_bytes(BIG[: 1 << 20])
    fault = hub.spoil(Fault("/storage/", method="GET", status=416))
    with pytest.raises(HubError, match="416"):
        await fetch(models, chosen)
    assert leftovers(client) == []
    hub.faults.remove(fault)
    assert (await fetch(models, chosen)).read_bytes() == BIG


@pytest.mark.parametrize("status", [404, 418])
async def test_a_beginning_stays_where_the_hub_refuses_for_other_reasons(
    status: int, hub: LocalHub, client: Client
) -> None:
    models, chosen, place = unfinished(hub, client)
    place.write_bytes(BIG[: 1 << 20])
    hub.spoil(Fault("/storage/", method="GET", status=status))
    with pytest.raises(HubError):
        await fetch(models, chosen)
    assert leftovers(client) == [place]


async def test_a_hub_without_ranges_sends_all_of_it_again(hub: LocalHub, client: Client) -> None:
    models, chosen, place = unfinished(hub, client)
    place.write_bytes(BIG[: 1 << 20])
    hub.knows_ranges = False
    assert (await fetch(models, chosen)).read_bytes() == BIG


async def test_what_the_clients_own_killed_downloads_left_is_removed(hub: LocalHub, client: Client) -> None:
    models, chosen, place = unfinished(hub, client)
    place.with_name(place.name.replace("partial", "0a1b2c3d")).write_bytes(b"what came in any order")
    await fetch(models, chosen)
    assert leftovers(client) == []


async def test_a_cut_connection_is_gone_on_with(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    hub.spoil(Fault("/storage/", method="GET", times=1, cut_after=5 << 20))
    path = await fetch(client.models(), client.chosen("a/b:Q4_0"))
    assert path.read_bytes() == BIG
    first, second = hub.requests("/storage/", "GET")
    assert first.range is None
    assert second.range is not None
    assert hub.sent_bytes("/storage/") < len(BIG) + (2 << 20)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_hub_is_tried_again(status: int, hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    hub.spoil(Fault("/storage/", method="GET", times=1, status=status, headers={"Retry-After": "0"}))
    assert (await fetch(client.models(), client.chosen("a/b:Q4_0"))).read_bytes() == BIG
    assert stored(hub, BIG) == 2


async def test_a_hub_that_wants_too_long_a_pause_is_not_waited_for(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    hub.spoil(Fault("/storage/", method="GET", status=503, headers={"Retry-After": "4000"}))
    with pytest.raises(HubBusy, match="Try later"):
        await fetch(client.models(), client.chosen("a/b:Q4_0"))


async def test_a_gated_file_names_its_page(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG}).gated = True
    with pytest.raises(HubGated, match=f"{hub.url}/a/b"):
        await fetch(client.models(), client.chosen("a/b:Q4_0"))
    models = client.models(HF_TOKEN=hub.token)
    assert (await fetch(models, client.chosen("a/b:Q4_0", models))).read_bytes() == BIG


async def test_the_token_is_in_no_command_line(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG}).private = True
    hub.spoil(Fault("/storage/", method="GET", rate=1e7))
    models = client.models(HF_TOKEN=hub.token)
    work = asyncio.ensure_future(fetch(models, client.chosen("a/b:Q4_0", models)))
    await eventually(children)
    assert not any(hub.token in word for child in children() for word in child.cmdline())
    await work


async def test_changed_bytes_are_found_and_removed(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    hub.spoil(Fault("/storage/", method="GET", times=1, corrupt=True))
    models = client.models()
    with pytest.raises(VerificationFailed, match="sha256"):
        await fetch(models, client.chosen("a/b:Q4_0"))
    assert blobs(client) == []
    assert (await fetch(models, client.chosen("a/b:Q4_0"))).read_bytes() == BIG


async def test_a_wrong_size_is_no_file(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG}).says_size["m-Q4_0.gguf"] = len(BIG) + 7
    with pytest.raises(DownloadFailed, match="broke off"):
        await fetch(client.models(), client.chosen("a/b:Q4_0"))
    assert blobs(client) == []
    assert leftovers(client) == []


async def test_no_room_is_said_before_anything_is_fetched(hub: LocalHub, client: Client) -> None:
    repo = hub.add("a/b", {"m-Q4_0.gguf": BIG})
    repo.says_size["m-Q4_0.gguf"] = 1 << 60
    with pytest.raises(DiskFull, match=r"needs 1073741824\.00 GiB more"):
        await fetch(client.models(), client.chosen("a/b:Q4_0"))
    assert hub.requests("/resolve/") == []


@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_FSIZE"), reason="limits of other processes are Linux's")
async def test_a_disk_that_runs_full_midway_keeps_what_is_whole(hub: LocalHub, client: Client) -> None:
    files = {**SHARDS, "m-Q8_0-00002-of-00003.gguf": PIECE * 5}
    hub.add("a/b", files)
    models = client.models()
    chosen = client.chosen("a/b:Q8_0", models)
    work = asyncio.ensure_future(fetch(models, chosen))
    await eventually(children)
    [worker] = children()
    worker.rlimit(psutil.RLIMIT_FSIZE, (4_000_000, 4_000_000))  # the disk as the process sees it
    with pytest.raises(DiskFull, match="ran full"):
        await work
    [partial] = leftovers(client)
    arrived = partial.stat().st_size
    assert arrived >= 3_000_000
    assert len(blobs(client)) == 1
    path = await fetch(models, chosen)
    assert [path.with_name(name).read_bytes() for name in files] == list(files.values())
    assert hub.requests(hashlib.sha256(PIECE * 5).hexdigest(), "GET")[-1].range == f"bytes={arrived}-"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
async def test_a_small_disk_that_another_program_fills_midway(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", SHARDS)
    hub.spoil(Fault("/storage/", method="GET", rate=4e6))
    with small_disk(client.home / "hf", 96 << 20) as disk:
        models = client.models()
        chosen = client.chosen("a/b:Q8_0", models)
        work = asyncio.ensure_future(fetch(models, chosen))
        await eventually(lambda: blobs(client))
        ballast = disk / "ballast"
        fill(ballast)
        with pytest.raises(DiskFull, match="ran full"):
            await work
        assert len(blobs(client)) >= 1
        ballast.unlink()
        path = await fetch(models, chosen)
        assert [path.with_name(name).read_bytes() for name in SHARDS] == list(SHARDS.values())


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of its own, of so many bytes."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> None:
    """Take all the room that there is."""
    with file.open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(1 << 16))


async def test_one_revision_whatever_the_branch_does_meanwhile(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", SHARDS)
    chosen = client.chosen("a/b:Q8_0")
    second = hashlib.sha256(SHARDS["m-Q8_0-00002-of-00003.gguf"]).hexdigest()
    hold = hub.spoil(Fault(second, method="GET", times=1, hold=threading.Event())).hold
    assert hold is not None
    models = client.models()
    work = asyncio.ensure_future(fetch(models, chosen))
    await eventually(lambda: blobs(client))
    hub.add("a/b", {name: data + b"new" for name, data in SHARDS.items()})
    hold.set()
    path = await work
    found = [path.with_name(name).read_bytes() for name in SHARDS]
    assert found == list(SHARDS.values())


async def test_a_hub_that_goes_away_is_said(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG})
    chosen = client.chosen("a/b:Q4_0")
    gone = client.models(HF_ENDPOINT="http://127.0.0.1:9")
    with pytest.raises((HubUnreachable, DownloadFailed)):
        await fetch(gone, chosen)


async def test_removing_frees_what_nobody_shares(hub: LocalHub, client: Client) -> None:
    hub.add("a/b", {"m-Q4_0.gguf": BIG, "m-Q8_0.gguf": PIECE})
    models = client.models()
    await fetch(models, client.chosen("a/b:Q4_0"))
    hub.add("a/b", {"m-Q4_0.gguf": BIG, "m-Q8_0.gguf": PIECE, "README.md": b"new"})
    await fetch(models, client.chosen("a/b:Q4_0"))
    await fetch(models, client.chosen("a/b:Q8_0"))
    assert stored(hub, BIG) == 1, "the same content in another commit is not fetched again"
    found = models.scan()
    assert len(found) == 3
    old, *new = sorted((one for one in found if one.variant.name == "Q4_0"), key=lambda one: one.refs)
    assert await models.downloads.remove(old.files) == 0
    assert await models.downloads.remove(new[0].files) == len(BIG)
    assert [one.variant.name for one in models.scan()] == ["Q8_0"]
