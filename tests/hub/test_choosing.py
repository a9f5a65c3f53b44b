"""Which variant of a repository is taken, for machines that a profile describes; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.config import Settings
from supervisor.config.settings import ModelOptions
from supervisor.core.gguf import TENSOR_TYPES
from supervisor.core.repository import Preference
from supervisor.errors import DiskFull, InvalidRequest, ModelDoesNotFit, VariantNotFound
from supervisor.pool.living import NOBODY
from supervisor.probe.profiles import load_profile
from supervisor.service.build import plans_alone, without_daemon
from supervisor.service.resolve import Answer, Asked
from supervisor.system.paths import places
from tests.support.gguf_bytes import STRING, array, header, pair, tensor
from tests.support.hub import Fault, LocalHub

pytestmark = pytest.mark.anyio

KINDS = {"BF16": 30, "Q8_0": 8, "Q6_K": 14, "Q4_K_M": 12, "Q2_K": 10}
LAYER = {
    "attn_q": (4096, 4096),
    "attn_k": (4096, 1024),
    "attn_v": (4096, 1024),
    "attn_output": (4096, 4096),
    "ffn_gate": (4096, 14336),
    "ffn_up": (4096, 14336),
    "ffn_down": (14336, 4096),
}


def llama_8b(kind: int, layers: int = 32) -> tuple[bytes, int]:
    """The beginning of a model of 8 billion weights of one type, and the size it would have."""
    shapes = {"token_embd.weight": (4096, 128256), "output.weight": (4096, 128256)}
    shapes |= {f"blk.{n}.{name}.weight": shape for n in range(layers) for name, shape in LAYER.items()}
    infos, offset = [], 0
    for name, shape in shapes.items():
        infos.append(tensor(name, shape, kind, offset))
        offset += -(-TENSOR_TYPES[kind].bytes_for(shape[0] * shape[1]) // 32) * 32
    pairs = [
        pair("general.architecture", STRING, "llama"),
        pair("llama.block_count", 4, layers),
        pair("llama.context_length", 4, 131072),
        pair("llama.embedding_length", 4, 4096),
        pair("llama.feed_forward_length", 4, 14336),
        pair("llama.attention.head_count", 4, 32),
        pair("llama.attention.head_count_kv", 4, 8),
        array("tokenizer.ggml.tokens", STRING, ["a"] * 128256),
    ]
    data = header(*pairs, tensors=len(infos)) + b"".join(infos)
    data += bytes(-len(data) % 32)
    return data, len(data) + offset


def publish(hub: LocalHub, layers: int = 32) -> None:
    files = {quant: llama_8b(kind, layers) for quant, kind in KINDS.items()}
    repo = hub.add("a/llama", {f"llama-{quant}.gguf": data for quant, (data, _) in files.items()})
    repo.says_size = {f"llama-{quant}.gguf": size for quant, (_, size) in files.items()}


class Desk:
    """Chooses without a daemon on the machine of a profile."""

    def __init__(self, hub: LocalHub, folder: Path) -> None:
        self._env = {"HOME": str(folder), "SUPERVISOR_HOME": str(folder / "s"), **hub.environment(folder / "hf")}

    async def ask(self, target: str, profile: str, prefer: Preference | None = None, **options: Any) -> Answer:
        machine = load_profile(profile)
        with without_daemon(Settings(), places(self._env), self._env, machine) as parts:
            parts.fetcher.hub.downloads.free = lambda: 1 << 50
            return await parts.resolver(NOBODY).resolve(Asked(target, None, ModelOptions(**options), prefer=prefer))

    async def warn(self, target: str, profile: str) -> str | None:
        machine = load_profile(profile)
        with without_daemon(Settings(), places(self._env), self._env, machine) as parts:
            answer = await parts.resolver(NOBODY).resolve(Asked(target))
            return await plans_alone(parts).warning(answer.entry)


@pytest.fixture
def desk(hub: LocalHub, tmp_path: Path) -> Desk:
    (tmp_path / "hf" / "hub").mkdir(parents=True)
    return Desk(hub, tmp_path)


@pytest.mark.parametrize(("profile", "chosen"), [("1x8gb", "Q2_K"), ("1x24gb", "BF16"), ("1x80gb", "BF16")])
async def test_the_best_that_fits_the_machine(profile: str, chosen: str, hub: LocalHub, desk: Desk) -> None:
    publish(hub)
    found = await desk.ask("a/llama", profile)
    assert found.entry.id == f"a/llama:{chosen}"
    assert found.entry.aliases == ("a/llama",)
    assert [one.name for one in found.table] == list(KINDS)
    well = [one.name for one in found.table if one.well]
    assert not well or well[0] == chosen, "those that are better do not fit as well"
    assert [one.name for one in found.table if one.chosen] == [chosen]
    assert hub.sent_bytes("/storage/") < 12_000_000, "two headers at most"


@pytest.mark.parametrize(
    ("prefer", "profile", "chosen"),
    [
        ("quality", "1x8gb", "BF16"),
        ("quality", "1x80gb", "BF16"),
        ("speed", "1x8gb", "Q4_K_M"),
        ("speed", "1x80gb", "Q4_K_M"),
        ("context", "1x24gb", "BF16"),
        ("context", "1x80gb", "BF16"),
    ],
)
async def test_what_is_preferred(prefer: Preference, profile: str, chosen: str, hub: LocalHub, desk: Desk) -> None:
    publish(hub)
    found = await desk.ask("a/llama", profile, prefer)
    assert found.entry.id == f"a/llama:{chosen}"
    (taken,) = [one for one in found.table if one.chosen]
    assert taken.fits
    assert taken.tokens_per_second


async def test_of_contexts_as_long_one_whole_on_devices_is_preferred(hub: LocalHub, desk: Desk) -> None:
    publish(hub)
    found = await desk.ask("a/llama", "1x24gb", "context", ctx_size=131072, parallel=1)
    notes = {one.name: one.note for one in found.table}
    assert found.entry.id == "a/llama:Q6_K"
    assert notes["Q6_K"] == "CUDA0, context 131072"
    assert notes["BF16"] == "CUDA0, CPU, context 131072"


@pytest.mark.parametrize("target", ["a/llama:Q8_0", "demo", "a/llama/llama-Q8_0.gguf"])
async def test_a_preference_among_one_is_refused(target: str, hub: LocalHub, desk: Desk) -> None:
    publish(hub)
    with pytest.raises(InvalidRequest, match="prefer chooses among the variants"):
        await desk.ask(target, "1x8gb", "speed")


async def test_the_forecast_is_what_the_planner_says_of_the_header_itself(hub: LocalHub, desk: Desk) -> None:
    publish(hub)
    table = {one.name: one for one in (await desk.ask("a/llama", "1x24gb")).table}
    for quant in KINDS:
        warned = await desk.warn(f"a/llama:{quant}", "1x24gb")
        assert (warned is None) == table[quant].fits, (quant, warned, table[quant])


async def test_more_context_leads_to_a_smaller_variant(hub: LocalHub, desk: Desk) -> None:
    publish(hub)
    found = await desk.ask("a/llama", "1x24gb", ctx_size=131072, parallel=1)
    chosen = next(one for one in found.table if one.chosen)
    assert chosen.name == "Q6_K"
    assert chosen.well
    assert chosen.note == "CUDA0, context 131072", "what is chosen was planned by its own header"
    assert "CPU" in next(one for one in found.table if one.name == "Q8_0").note
    cpu = await desk.ask("a/llama", "1x24gb", device=[])
    assert next(one for one in cpu.table if one.chosen).note.startswith("CPU, ")


async def test_what_fits_nowhere_is_refused_with_the_list(hub: LocalHub, desk: Desk) -> None:
    publish(hub, layers=500)
    with pytest.raises(ModelDoesNotFit, match=r"No variant of a/llama fits here: .*Q2_K \(\d+\.\d GiB, does not fit\)"):
        await desk.ask("a/llama", "1x8gb")


async def test_one_that_was_named_is_taken_and_warned_of(hub: LocalHub, desk: Desk) -> None:
    publish(hub, layers=500)
    assert (await desk.ask("a/llama:Q8_0", "1x8gb")).entry.id == "a/llama:Q8_0"
    warned = await desk.warn("a/llama:Q8_0", "1x8gb")
    assert warned is not None
    assert "GiB" in warned


async def test_what_the_disk_has_no_room_for_does_not_count(hub: LocalHub, desk: Desk) -> None:
    publish(hub)
    sizes = hub.repositories["a/llama"].says_size
    sizes["llama-BF16.gguf"] = sizes["llama-Q8_0.gguf"] = 1 << 58
    found = await desk.ask("a/llama", "1x80gb")
    assert found.entry.id == "a/llama:Q6_K"
    assert [one.name for one in found.table] == ["Q6_K", "Q4_K_M", "Q2_K"]
    sizes.update(dict.fromkeys(sizes, 1 << 58))
    with pytest.raises(DiskFull):
        await desk.ask("a/llama", "1x80gb")


async def test_what_there_is_not_is_refused_with_what_there_is_and_fits(hub: LocalHub, desk: Desk) -> None:
    publish(hub, layers=300)
    with pytest.raises(VariantNotFound) as caught:
        await desk.ask("a/llama:Q5_K_M", "1x24gb")
    assert "a/llama has no 'Q5_K_M'. It has: " in caught.value.message
    assert "BF16 (123.8 GiB, does not fit)" in caught.value.message
    assert "Q4_K_M (34.8 GiB, fits)" in caught.value.message


async def test_the_short_name_stays_with_the_choice(hub: LocalHub, tmp_path: Path) -> None:
    publish(hub)
    env = {"HOME": str(tmp_path), "SUPERVISOR_HOME": str(tmp_path / "s"), **hub.environment(tmp_path / "hf")}
    machine = load_profile("1x80gb")
    with without_daemon(Settings(), places(env), env, machine) as parts:
        parts.fetcher.hub.downloads.free = lambda: 1 << 50
        resolver, registry = parts.resolver(NOBODY), parts.registry
        registry.add((await resolver.resolve(Asked("a/llama:BF16"))).entry)
        registry.add((await resolver.resolve(Asked("a/llama"))).entry)
        assert registry.find("a/llama").id == "a/llama:BF16"
        hub.spoil(Fault("/api/models", status=500))
        assert (await resolver.resolve(Asked("a/llama"))).entry.id == "a/llama:BF16"
