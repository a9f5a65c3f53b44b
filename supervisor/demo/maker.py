"""Write a script as a GGUF that the real engine loads and obeys.

One block of zero matrices, so the last token alone decides. A token is a vector of signs, and the row of its successor
in the output matrix is the same vector scaled: that one logit is far above all others, at any sensible temperature.
The first columns are flags instead of signs, for what many tokens share:

    plain    single bytes, the tokens of prompts: they lead to the default text
    one      every token: what is preferred when a grammar forbids the successor
    last     the last piece of a text: it leads to the end token, or to a tool call where a grammar demands one

Signs come from a hash and the tensors are F16, so the same script gives the same bytes everywhere.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

from supervisor.demo import gguf_file as gguf
from supervisor.demo.pieces import split_texts
from supervisor.demo.script import Script, lines, start_token
from supervisor.demo.template import chat_template
from supervisor.system.atomic import atomic_write

MAKER_VERSION = 1
"""Part of the built-in model's file name: raise it when another file is written for the same script."""

_WIDTH = 128
_PLAIN, _ONE, _LAST, _FLAGS = 0, 1, 2, 3
_FLAG = 4.0
_GAIN = 2048.0
_HEAD = 32
_FEED_FORWARD = 32
_END = "<|im_end|>"
_CONTROL = ("<|im_start|>", _END)
_CALL = "<tool_call>\n"
_PREFERRED = b'0[{,:]}"'  # last first; a grammar that forbids the successor soon comes to its end this way

_NORMAL, _SPECIAL = 1, 3  # llama.cpp's kinds of tokens (`llama_token_type`)
_POOLING_MEAN = 1  # `llama_pooling_type`
_MOSTLY_F16 = 1  # `llama_ftype`

_Row = list[float]
_SIGN_GAIN = _GAIN / (_WIDTH - _FLAGS)
_SIGNS = [[1.0 if byte >> bit & 1 else -1.0 for bit in range(7, -1, -1)] for byte in range(256)]


@dataclass(frozen=True)
class _Vocabulary:
    """Token ids are positions in `texts`: 256 bytes, the control tokens, the pieces."""

    texts: tuple[str, ...]
    types: tuple[int, ...]
    successors: dict[int, int]  # without those that a flag expresses
    last: frozenset[int]  # tokens followed by the end token
    default: int  # first token of the default text


def _byte_characters() -> list[str]:
    """Return the printable stand-in of every byte in a byte-level vocabulary (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters = [""] * 256
    for byte in printable:
        characters[byte] = chr(byte)
    rest = [byte for byte in range(256) if not characters[byte]]
    for position, byte in enumerate(rest):
        characters[byte] = chr(256 + position)
    return characters


BYTES = _byte_characters()
"""The printable stand-in of every byte in a byte-level vocabulary."""


def write_scripted_gguf(path: Path, script: Script) -> None:
    """Write the model of `script` to `path`. Raise ValueError naming a text that cannot be cut, OSError."""
    vocabulary = _vocabulary(script)
    atomic_write(path, gguf.whole_file(_metadata(script, vocabulary), _tensors(vocabulary)))


def _vocabulary(script: Script) -> _Vocabulary:
    said = lines(script)
    control = (*_CONTROL, *(line.start for line in said))
    split = split_texts([line.text for line in said], reserved=(*control, _CALL))
    texts = [*BYTES, *control, _encoded(_CALL)]
    types = [_NORMAL] * 256 + [_SPECIAL] * len(control) + [_NORMAL]
    end = 256 + control.index(_END)
    successors: dict[int, int] = {}
    last: set[int] = set()
    firsts: dict[str, int] = {}
    for line, pieces in zip(said, split, strict=True):
        previous = first = texts.index(line.start)
        for piece in pieces:
            successors[previous] = len(texts)
            previous = len(texts)
            texts.append(_encoded(piece))
            types.append(_NORMAL)
        if line.endless:
            successors[previous] = successors[first]
        else:
            last.add(previous)
        firsts[line.start] = successors.get(first, end)
    if script.call_first_tool:
        successors[ord("}")] = firsts[start_token("call-end")]
    return _Vocabulary(tuple(texts), tuple(types), successors, frozenset(last), firsts[start_token("default")])


def _encoded(text: str) -> str:
    """Return `text` in the spelling of a byte-level vocabulary."""
    return "".join(BYTES[byte] for byte in text.encode())


def _embeddings(vocabulary: _Vocabulary) -> list[_Row]:
    rows = [_signs(token) for token in range(len(vocabulary.texts))]
    for token, row in enumerate(rows):
        row[_PLAIN] = _FLAG if token < 256 and token not in vocabulary.successors else 0.0
        row[_ONE] = 1.0
        row[_LAST] = _FLAG if token in vocabulary.last else 0.0
    return rows


def _output(vocabulary: _Vocabulary, embeddings: list[_Row]) -> list[_Row]:
    end = vocabulary.texts.index(_END)
    rows = [[0.0] * _WIDTH for _ in embeddings]
    for token, successor in vocabulary.successors.items():
        row = rows[successor]
        row[_FLAGS:] = [
            sum_ + sign * _SIGN_GAIN for sum_, sign in zip(row[_FLAGS:], embeddings[token][_FLAGS:], strict=True)
        ]
    rows[vocabulary.default][_PLAIN] = _GAIN / _FLAG
    rows[end][_LAST] = _GAIN / _FLAG
    rows[vocabulary.texts.index(_encoded(_CALL))][_LAST] = 0.9 * _GAIN / _FLAG
    for byte in range(0x21, 0x7F):
        rows[byte][_ONE] = 900.0 + 5 * (0x7E - byte)
    for rank, token in enumerate((*_PREFERRED, end)):
        rows[token][_ONE] = 1400.0 + 20 * rank
    return rows


def _signs(token: int) -> _Row:
    digest = hashlib.shake_128(b"scripted token %d" % token).digest(_WIDTH // 8)
    return [sign for byte in digest for sign in _SIGNS[byte]]


def _metadata(script: Script, vocabulary: _Vocabulary) -> dict[str, bytes]:
    return {
        "general.architecture": gguf.text("llama"),
        "general.name": gguf.text(script.name),
        "llama.context_length": gguf.u32(script.n_ctx),
        "llama.embedding_length": gguf.u32(_WIDTH),
        "llama.block_count": gguf.u32(1),
        "llama.feed_forward_length": gguf.u32(_FEED_FORWARD),
        "llama.attention.head_count": gguf.u32(1),
        "llama.attention.head_count_kv": gguf.u32(1),
        "llama.attention.key_length": gguf.u32(_HEAD),
        "llama.attention.value_length": gguf.u32(_HEAD),
        "llama.rope.dimension_count": gguf.u32(_HEAD),
        "llama.attention.layer_norm_rms_epsilon": gguf.f32(1e-6),
        "llama.pooling_type": gguf.u32(_POOLING_MEAN),
        "general.file_type": gguf.u32(_MOSTLY_F16),
        "tokenizer.ggml.model": gguf.text("gpt2"),
        "tokenizer.ggml.pre": gguf.text("gpt-2"),
        "tokenizer.ggml.tokens": gguf.texts(vocabulary.texts),
        "tokenizer.ggml.token_type": gguf.i32s(vocabulary.types),
        # the engine wants the key; these two stand for bytes 0 0, which make no token
        "tokenizer.ggml.merges": gguf.texts(["Ā Ā"]),
        "tokenizer.ggml.eos_token_id": gguf.u32(vocabulary.texts.index(_END)),
        "tokenizer.ggml.add_bos_token": gguf.flag(False),
        "tokenizer.ggml.add_eos_token": gguf.flag(False),
        "tokenizer.chat_template": gguf.text(chat_template(script)),
    }


def _tensors(vocabulary: _Vocabulary) -> list[gguf.Tensor]:
    embeddings = _embeddings(vocabulary)
    return [
        _matrix("token_embd", embeddings),
        _matrix("output", _output(vocabulary, embeddings)),
        _ones("output_norm"),
        _ones("blk.0.attn_norm"),
        _zeros("blk.0.attn_q", _HEAD, _WIDTH),
        _zeros("blk.0.attn_k", _HEAD, _WIDTH),
        _zeros("blk.0.attn_v", _HEAD, _WIDTH),
        _zeros("blk.0.attn_output", _WIDTH, _HEAD),
        _ones("blk.0.ffn_norm"),
        _zeros("blk.0.ffn_gate", _FEED_FORWARD, _WIDTH),
        _zeros("blk.0.ffn_up", _FEED_FORWARD, _WIDTH),
        _zeros("blk.0.ffn_down", _WIDTH, _FEED_FORWARD),
    ]


def _matrix(name: str, rows: list[_Row]) -> gguf.Tensor:
    pack = struct.Struct(f"<{_WIDTH}e").pack
    return gguf.Tensor(f"{name}.weight", (_WIDTH, len(rows)), gguf.F16, b"".join(pack(*row) for row in rows))


def _zeros(name: str, rows: int, columns: int) -> gguf.Tensor:
    return gguf.Tensor(f"{name}.weight", (columns, rows), gguf.F16, bytes(2 * rows * columns))


def _ones(name: str) -> gguf.Tensor:
    return gguf.Tensor(f"{name}.weight", (_WIDTH,), gguf.F32, struct.pack("<f", 1.0) * _WIDTH)
