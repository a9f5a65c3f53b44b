"""Repositories of safetensors: recognised, read from afar, downloaded without anything that can be run, removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.core.repository import HubReference, catalog_of, find
from supervisor.core.repository.entries import RepoFile
from supervisor.errors import ModelConfigError, NotSupportedByEngine, SafetensorsError, ShardMissing, VariantNotFound
from supervisor.files.mlx_folder import read_mlx
from supervisor.hub.models import HubModels
from supervisor.service.pulls import means
from tests.hub.conftest import Client
from tests.support.hub import LocalHub
from tests.support.safetensors import SMALL_LLAMA, small_files

pytestmark = pytest.mark.anyio

UNWANTED = {
    "modeling_llama.py": b"import os",
    "pytorch_model.bin": b"pickle",
    "model.pkl": b"pickle",
    "training_args.bin": b"pickle",
    "original/model.safetensors": b"of another folder",
    "adapter_model.safetensors": b"no model's name",
    "README.md": b"a card",
}


def publish(hub: LocalHub, **more: bytes) -> None:
    hub.add("a/m", {**UNWANTED, **small_files(), **more})


def test_only_what_a_model_is_made_of_is_chosen() -> None:
    files = [RepoFile(path, len(data)) for path, data in {**UNWANTED, **small_files()}.items()]
    found = catalog_of(files).mlx
    assert found is not None
    assert {part.path for part in found.parts} == small_files().keys()
    assert found.path == "config.json"


def test_a_file_that_is_too_large_for_what_it_is_is_left_out() -> None:
    files = [RepoFile(path, len(data)) for path, data in small_files().items() if path != "tokenizer_config.json"]
    catalog = catalog_of([*files, RepoFile("tokenizer_config.json", 1 << 40)])
    assert catalog.mlx is not None
    assert "tokenizer_config.json" not in {part.path for part in catalog.mlx.parts}
    huge = [file for file in files if file.path != "config.json"]
    assert catalog_of([*huge, RepoFile("config.json", 1 << 40)]).mlx is None


def test_of_both_formats_gguf_is_taken_unless_told() -> None:
    files = [RepoFile(path, 9) for path in (*small_files(), "m-Q4_0.gguf")]
    catalog = catalog_of(files)
    assert [one.name for one in find(catalog, "a/m", None, None)] == ["Q4_0"]
    assert [one.name for one in find(catalog, "a/m", "mlx", None)] == ["MLX"]
    without = catalog_of(file for file in files if not file.path.endswith(".gguf"))
    assert [one.name for one in find(without, "a/m", None, None)] == ["MLX"]


def test_a_repository_without_one_says_what_there_is() -> None:
    with pytest.raises(VariantNotFound, match=r"has no 'mlx'\. It has: Q4_0"):
        find(catalog_of([RepoFile("m-Q4_0.gguf", 9)]), "a/m", "mlx", None)


def test_a_part_that_is_missing_is_named() -> None:
    names = ["config.json", "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"]
    with pytest.raises(ShardMissing, match="model-00002-of-00003"):
        find(catalog_of([RepoFile(name, 9) for name in names]), "a/m", None, None)


async def test_a_model_is_downloaded_and_is_what_was_read_from_afar(hub: LocalHub, tmp_path: Path) -> None:
    publish(hub)
    client = Client(hub, tmp_path)
    models = client.models()
    chosen = client.chosen("a/m", models)
    assert chosen.reference == "a/m:MLX"
    afar = models.mlx(chosen)
    assert not any(seen.range is None for seen in hub.requests("model.safetensors"))
    local = await models.fetch(chosen, vision=True)
    folder = local.path.parent
    assert {path.name for path in folder.iterdir()} == small_files().keys()
    assert read_mlx(folder).facts == models.mlx(chosen).facts == afar.facts
    client.close()


async def test_its_files_are_removed_only_under_its_own_name(hub: LocalHub, tmp_path: Path) -> None:
    publish(hub)
    client = Client(hub, tmp_path)
    models = client.models()
    await models.fetch(client.chosen("a/m", models), vision=True)
    (there,) = models.scan()
    assert there.variant.name == "MLX"
    assert means(reference(models, "a/m:mlx"), there)
    assert not means(reference(models, "a/m"), there)
    client.close()


def reference(models: HubModels, text: str) -> HubReference:
    found = models.parse(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"config.json": b"[" * 9999}, ModelConfigError),
        ({"config.json": json.dumps({**SMALL_LLAMA, "num_hidden_layers": 1 << 30}).encode()}, ModelConfigError),
        ({"model.safetensors": b"\xff" * 16}, SafetensorsError),
        ({"model.safetensors": (1 << 20).to_bytes(8, "little") + b"{}"}, SafetensorsError),
    ],
)
def test_hostile_files_are_refused_by_code(
    hub: LocalHub, tmp_path: Path, files: dict[str, bytes], error: type[Exception]
) -> None:
    hub.add("a/m", {**small_files(), **files})
    client = Client(hub, tmp_path)
    models = client.models()
    with pytest.raises(error):
        models.mlx(client.chosen("a/m", models))
    client.close()


def test_an_engine_for_gguf_refuses_it_before_a_download(hub: LocalHub, tmp_path: Path) -> None:
    publish(hub)
    client = Client(hub, tmp_path)
    models = client.models()
    with pytest.raises(NotSupportedByEngine, match="a/m:mlx"):
        models.model(client.chosen("a/m", models))
    client.close()
