"""Makes a small, whole projector of the LLaVA kind: the engine takes it and turns pictures into embeddings."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

PATCH, SIDE, WIDTH, INNER, LAYERS = 14, 28, 16, 32, 2


def write_projector(path: Path, n_embd: int, inner: int = INNER) -> Path:
    """Write one for models whose embeddings are `n_embd` wide; all weights are zero. inner: of the feed forward."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.use_gelu", True)
    for name, number in {
        "image_size": SIDE,
        "patch_size": PATCH,
        "embedding_length": WIDTH,
        "feed_forward_length": inner,
        "block_count": LAYERS,
        "projection_dim": n_embd,
        "attention.head_count": 2,
    }.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    for name, shape in _shapes(n_embd, inner).items():
        matrix = len(shape) > 1 and "position" not in name
        writer.add_tensor(name, np.zeros(shape, dtype=np.float16 if matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shapes(n_embd: int, inner: int) -> dict[str, tuple[int, ...]]:
    """Outermost dimension first, as numpy has them."""
    found: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": (WIDTH, 3, PATCH, PATCH),
        "v.class_embd": (WIDTH,),
        "v.position_embd.weight": ((SIDE // PATCH) ** 2 + 1, WIDTH),
        "mm.0.weight": (n_embd, WIDTH),
        "mm.0.bias": (n_embd,),
        "mm.2.weight": (n_embd, n_embd),
        "mm.2.bias": (n_embd,),
    }
    for layer in range(LAYERS):
        sizes = {"ln1": 0, "ln2": 0, "attn_q": WIDTH, "attn_k": WIDTH, "attn_v": WIDTH, "attn_out": WIDTH}
        for name, outputs in {**sizes, "ffn_up": inner}.items():
            found[f"v.blk.{layer}.{name}.weight"] = (outputs, WIDTH) if outputs else (WIDTH,)
            found[f"v.blk.{layer}.{name}.bias"] = (outputs or WIDTH,)
        found[f"v.blk.{layer}.ffn_down.weight"] = (WIDTH, inner)
        found[f"v.blk.{layer}.ffn_down.bias"] = (WIDTH,)
    return found
