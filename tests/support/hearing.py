"""Makes a small, whole projector of the Ultravox kind, through which a model hears, and sounds for it."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import gguf
import numpy as np

MELS, WIDTH, INNER, LAYERS, STACK, POSITIONS = 80, 16, 32, 1, 10, 1500
RATE = 16_000


def write_ear(path: Path, n_embd: int) -> Path:
    """Write one for models whose embeddings are `n_embd` wide; all weights are zero."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string("clip.projector_type", "ultravox")
    for name, number in {
        "num_mel_bins": MELS,
        "embedding_length": WIDTH,
        "feed_forward_length": INNER,
        "block_count": LAYERS,
        "projection_dim": n_embd,
        "attention.head_count": 2,
        "projector.stack_factor": STACK,
    }.items():
        writer.add_uint32(f"clip.audio.{name}", number)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    for name, shape in _shapes(n_embd).items():
        matrix = len(shape) > 1 and "position" not in name and not name.endswith("bias")
        writer.add_tensor(name, np.zeros(shape, dtype=np.float16 if matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sound(seconds: float) -> bytes:
    """A WAV file of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(bytes(2 * int(RATE * seconds)))
    return file.getvalue()


def _shapes(n_embd: int) -> dict[str, tuple[int, ...]]:
    """Outermost dimension first, as numpy has them."""
    found: dict[str, tuple[int, ...]] = {
        "a.conv1d.1.weight": (WIDTH, MELS, 3),
        "a.conv1d.1.bias": (WIDTH, 1),
        "a.conv1d.2.weight": (WIDTH, WIDTH, 3),
        "a.conv1d.2.bias": (WIDTH, 1),
        "a.position_embd.weight": (POSITIONS, WIDTH),
        "a.post_ln.weight": (WIDTH,),
        "a.post_ln.bias": (WIDTH,),
        "mm.a.mlp.1.weight": (2 * n_embd, STACK * WIDTH),
        "mm.a.mlp.2.weight": (n_embd, n_embd),
        "mm.a.norm_pre.weight": (STACK * WIDTH,),
        "mm.a.norm_mid.weight": (n_embd,),
    }
    for layer in range(LAYERS):
        start = f"a.blk.{layer}"
        for name in ("ln1", "ln2"):
            found |= {f"{start}.{name}.weight": (WIDTH,), f"{start}.{name}.bias": (WIDTH,)}
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            found[f"{start}.{name}.weight"] = (WIDTH, WIDTH)
            if name != "attn_k":  # as in Whisper
                found[f"{start}.{name}.bias"] = (WIDTH,)
        found |= {f"{start}.ffn_up.weight": (INNER, WIDTH), f"{start}.ffn_up.bias": (INNER,)}
        found |= {f"{start}.ffn_down.weight": (WIDTH, INNER), f"{start}.ffn_down.bias": (WIDTH,)}
    return found
