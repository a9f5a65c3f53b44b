"""Small stand-ins for the models that llama.cpp's server tests load: their vocabularies, and weights by chance.

They lie in a folder like the hub's cache, so llama-server and the daemon find them by the names of the tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import gguf
import numpy as np

from tests.support.adapters import write_stubborn_adapter
from tests.support.projector import write_projector

WIDTH, HEADS, LAYERS, INNER = 64, 4, 2, 128
_BYTES, _MERGED = 259, 160  # of Llama's vocabulary: bytes and control tokens, the first merged pieces
_FIM: Final = {"prefix": 3, "suffix": 4, "middle": 5}
_BERT = 32
_COMMIT: Final = "5ca1ab1e" * 5

Tensors = dict[str, np.ndarray]


class Chance:
    """Weights by chance, the same for the same seed everywhere."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)

    def matrix(self, rows: int, columns: int, scale: float = 1.0) -> np.ndarray:
        """Of such a size that a vector keeps its length."""
        drawn: np.ndarray = self._draw.standard_normal((rows, columns)) * scale / columns**0.5
        return drawn.astype(np.float16)


def write_models(cache: Path, vocabularies: Path) -> None:
    """Write all of them. cache: the folder; vocabularies: llama.cpp's folder `models`."""
    spm, bert = (_fields(vocabularies / f"ggml-vocab-{name}.gguf") for name in ("llama-spm", "bert-bge"))
    plain = _small_vocabulary(spm)
    infill = plain | {f"tokenizer.ggml.fim_{name[:3]}_token_id": token for name, token in _FIM.items()}
    write_llama(_place(cache, "ggml-org/test-model-stories260K", "stories260K-F32.gguf"), plain, 1)
    write_llama(_place(cache, "ggml-org/test-model-stories260K-infill", "stories260K-infill-F32.gguf"), infill, 2)
    moe = write_llama(_place(cache, "ggml-org/stories15M_MOE", "stories15M_MOE-F16.gguf"), plain, 3)
    write_stubborn_adapter(cache / "moe_shakespeare15M.gguf", moe, "a")
    write_llama(cache / "stories15M-q4_0.gguf", plain, 4)
    write_llama(_place(cache, "ggml-org/tinygemma3-GGUF", "tinygemma3-Q8_0.gguf"), plain, 5)
    write_projector(_place(cache, "ggml-org/tinygemma3-GGUF", "mmproj-tinygemma3-Q8_0.gguf"), WIDTH)
    write_llama(_place(cache, "ggml-org/models", "tinyllamas/stories260K.gguf"), plain, 1)
    write_llama(_place(cache, "ggml-org/models", "tinyllamas/split/stories15M-q8_0.gguf"), plain, 6, parts=3)
    write_bert(_place(cache, "ggml-org/models", "bert-bge-small/ggml-model-f16.gguf"), bert, ranks=False)
    write_bert(_place(cache, "ggml-org/models", "jina-reranker-v1-tiny-en/ggml-model-f16.gguf"), bert, ranks=True)


def _place(cache: Path, repo: str, name: str) -> Path:
    """The path of a file of a repository, whose folders are made."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    path = folder / "snapshots" / _COMMIT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(_COMMIT)
    return path


def _fields(path: Path) -> dict[str, object]:
    """What a file says of its vocabulary."""
    fields = gguf.GGUFReader(path).fields
    return {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer.")}


def _small_vocabulary(spm: Mapping[str, object]) -> dict[str, object]:
    """Some five hundred tokens of Llama's: bytes, short pieces, every ASCII character."""
    texts = spm["tokenizer.ggml.tokens"]
    assert isinstance(texts, list)
    last = [at for at, text in enumerate(texts) if at > _BYTES + _MERGED and (text == "▁" or _is_ascii(text))]
    kept = [*range(_BYTES + _MERGED), *last]
    lists = {key: [value[at] for at in kept] for key, value in spm.items() if isinstance(value, list)}
    return {**spm, **lists}


def _is_ascii(text: str) -> bool:
    return len(text) == 1 and text.isascii()


def write_llama(path: Path, vocabulary: Mapping[str, object], seed: int, parts: int = 1) -> Path:
    """Write a model that writes text by chance and never ends by itself. parts: files, for a split one."""
    made = _llama_tensors(Chance(seed), _count(vocabulary))
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=0 if parts == 1 else -(-len(made) // parts))
    for key, number in {
        "context_length": 2048,
        "embedding_length": WIDTH,
        "block_count": LAYERS,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "rope.dimension_count": WIDTH // HEADS,
    }.items():
        writer.add_uint32(f"llama.{key}", number)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    _write(writer, path, vocabulary, made)
    return path


def _count(vocabulary: Mapping[str, object]) -> int:
    texts = vocabulary["tokenizer.ggml.tokens"]
    assert isinstance(texts, list)
    return len(texts)


def _llama_tensors(chance: Chance, words: int) -> Tensors:
    output = chance.matrix(words, WIDTH, 8.0)
    output[:_BYTES] = 0  # neither bytes nor the end
    made = {
        "token_embd.weight": chance.matrix(words, WIDTH, 8.0),
        "output.weight": output,
        "output_norm.weight": np.ones(WIDTH, np.float32),
    }
    for layer in range(LAYERS):
        here = {f"attn_{name}": chance.matrix(WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        here |= {name: chance.matrix(INNER, WIDTH) for name in ("ffn_gate", "ffn_up")}
        here |= {"ffn_down": chance.matrix(WIDTH, INNER)}
        here |= {name: np.ones(WIDTH, np.float32) for name in ("attn_norm", "ffn_norm")}
        made |= {f"blk.{layer}.{name}.weight": values for name, values in here.items()}
    return made


def write_bert(path: Path, vocabulary: Mapping[str, object], *, ranks: bool) -> None:
    """Write a model of embeddings. ranks: one that orders documents instead."""
    writer = gguf.GGUFWriter(path, "bert")
    for key, number in {
        "context_length": 512,
        "embedding_length": _BERT,
        "block_count": LAYERS,
        "feed_forward_length": 2 * _BERT,
        "attention.head_count": 2,
        "pooling_type": (gguf.PoolingType.RANK if ranks else gguf.PoolingType.CLS).value,
    }.items():
        writer.add_uint32(f"bert.{key}", number)
    writer.add_float32("bert.attention.layer_norm_epsilon", 1e-12)
    writer.add_bool("bert.attention.causal", False)
    made = _bert_tensors(Chance(7), _count(vocabulary))
    _write(writer, path, vocabulary, made | (_ranking(Chance(8)) if ranks else {}))


def _bert_tensors(chance: Chance, words: int) -> Tensors:
    made = {
        "token_embd.weight": chance.matrix(words, _BERT, 8.0),
        "token_types.weight": chance.matrix(2, _BERT).astype(np.float32),
        "position_embd.weight": chance.matrix(512, _BERT).astype(np.float32),
        **_norm("token_embd_norm"),
    }
    for layer in range(LAYERS):
        here = {f"attn_{name}": (_BERT, _BERT) for name in ("q", "k", "v", "output")}
        here |= {"ffn_up": (2 * _BERT, _BERT), "ffn_down": (_BERT, 2 * _BERT)}
        for name, (rows, columns) in here.items():
            made[f"blk.{layer}.{name}.weight"] = chance.matrix(rows, columns)
            made[f"blk.{layer}.{name}.bias"] = np.zeros(rows, np.float32)
        made |= _norm(f"blk.{layer}.attn_output_norm") | _norm(f"blk.{layer}.layer_output_norm")
    return made


def _norm(name: str) -> Tensors:
    return {f"{name}.weight": np.ones(_BERT, np.float32), f"{name}.bias": np.zeros(_BERT, np.float32)}


def _ranking(chance: Chance) -> Tensors:
    return {
        "cls.weight": chance.matrix(_BERT, _BERT),
        "cls.bias": np.zeros(_BERT, np.float32),
        "cls.output.weight": chance.matrix(1, _BERT),
        "cls.output.bias": np.zeros(1, np.float32),
    }


def _write(writer: gguf.GGUFWriter, path: Path, vocabulary: Mapping[str, object], tensors: Tensors) -> None:
    writer.add_name(path.stem)
    for key, value in vocabulary.items():
        _add(writer, key, value)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, Iterable):
        writer.add_array(key, list(value))
