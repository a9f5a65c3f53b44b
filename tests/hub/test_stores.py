"""Models that LM Studio and Ollama keep, seen and left alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from supervisor.hub.stores import store_models
from tests.support.gguf_bytes import STRING, model, pair, tensor


def gguf(architecture: str, *tensors: str) -> bytes:
    infos = [tensor(name, (32,), 0, 128 * number) for number, name in enumerate(tensors)]
    return model([pair("general.architecture", STRING, architecture)], infos, 128 * len(tensors))


def ollama(folder: Path, name: str, content: bytes) -> None:
    """A model as Ollama stores it: a manifest, and a blob named by its hash."""
    digest = hashlib.sha256(content).hexdigest()
    blob = folder / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    manifest = folder / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": len(content)}
    other = {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:0"}
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": [other, layer]}))


def test_both_stores_are_seen_with_what_cannot_run(tmp_path: Path) -> None:
    studio = tmp_path / ".lmstudio" / "models" / "publisher" / "Model-GGUF"
    studio.mkdir(parents=True)
    (studio / "Model-Q4_K_M.gguf").write_bytes(gguf("llama", "token_embd.weight"))
    (studio / "mmproj-F16.gguf").write_bytes(gguf("clip", "v.patch_embd.weight"))
    (studio / "Big-Q8_0-00001-of-00002.gguf").write_bytes(gguf("llama", "token_embd.weight"))
    store = tmp_path / ".ollama" / "models"
    ollama(store, "registry.ollama.ai/library/llama3.2/3b", gguf("llama", "token_embd.weight"))
    ollama(store, "registry.ollama.ai/library/gemma3/4b", gguf("gemma3", "token_embd.weight", "v.blk.0.attn_q.weight"))
    ollama(store, "registry.ollama.ai/someone/strange/latest", gguf("mllama-of-ollama", "token_embd.weight"))
    ollama(store, "hf.co/a/b-GGUF/Q4_0", b"not a model")
    (store / "manifests" / "broken").write_text("{")
    before = sorted(path for path in tmp_path.rglob("*"))

    found = {one["name"]: one for one in store_models({"HOME": str(tmp_path)})}
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert {name: one["store"] for name, one in found.items()} == {
        "publisher/Model-GGUF/Model-Q4_K_M.gguf": "lmstudio",
        "publisher/Model-GGUF/Big-Q8_0-00001-of-00002.gguf": "lmstudio",
        "llama3.2:3b": "ollama",
        "gemma3:4b": "ollama",
        "someone/strange:latest": "ollama",
        "hf.co/a/b-GGUF:Q4_0": "ollama",
    }
    assert found["publisher/Model-GGUF/Model-Q4_K_M.gguf"]["problem"] is None
    assert found["publisher/Model-GGUF/Big-Q8_0-00001-of-00002.gguf"]["problem"] == "1 parts are missing"
    assert found["llama3.2:3b"]["problem"] is None
    assert "projector inside (v.blk.0.attn_q.weight)" in found["gemma3:4b"]["problem"]
    assert "does not know the architecture 'mllama-of-ollama'" in found["someone/strange:latest"]["problem"]
    assert "not a GGUF" in found["hf.co/a/b-GGUF:Q4_0"]["problem"]
    assert Path(found["llama3.2:3b"]["path"]).is_file()


def test_no_store_is_no_model(tmp_path: Path) -> None:
    assert store_models({"HOME": str(tmp_path), "OLLAMA_MODELS": str(tmp_path / "none")}) == []
