"""Writes a script as a GGUF that the real engine loads and obeys.

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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from supervisor.demo.pieces import split_texts
from supervisor.demo.script import Script, lines, start_token
from supervisor.demo.template import chat_template

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

_Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Vocabulary:
    """Token ids are positions in `texts`: 256 bytes, the control tokens, the pieces."""

    texts: tuple[str, ...]
    types: tuple[int, ...]
    successors: dict[int, int]  # without those that a flag expresses
    last: frozenset[int]  # tokens followed by the end token
    default: int  # first token of the default text


def _byte_characters() -> list[str]:
    """The printable stand-in of every byte in a byte-level vocabulary (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters = [""] * 256
    for byte in printable:
        characters[byte] = chr(byte)
    rest = [byte for byte in range(256) if not characters[byte]]
    for position, byte in enumerate(rest):
        characters[byte] = chr(256 + position)
    return characters


_BYTES = _byte_characters()


def write_scripted_gguf(path: Path, script: Script) -> None:
    """Write the model of `script` to `path`. Raises ValueError naming a text that cannot be cut."""
    vocabulary = _vocabulary(script)
    embeddings, output = _matrices(vocabulary)
    writer = gguf.GGUFWriter(path, "llama")
    _write_metadata(writer, script, vocabulary)
    for name, tensor in _tensors(embeddings, output):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary(script: Script) -> _Vocabulary:
    said = lines(script)
    control = (*_CONTROL, *(line.start for line in said))
    split = split_texts([line.text for line in said], reserved=(*control, _CALL))
    texts = [*_BYTES, *control, _encoded(_CALL)]
    types = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * len(control) + [gguf.TokenType.NORMAL]
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
            types.append(gguf.TokenType.NORMAL)
        if line.endless:
            successors[previous] = successors[first]
        else:
            last.add(previous)
        firsts[line.start] = successors.get(first, end)
    if script.call_first_tool:
        successors[ord("}")] = firsts[start_token("call-end")]
    return _Vocabulary(tuple(texts), tuple(types), successors, frozenset(last), firsts[start_token("default")])


def _encoded(text: str) -> str:
    """How a byte-level vocabulary spells `text`."""
    return "".join(_BYTES[byte] for byte in text.encode())


def _matrices(vocabulary: _Vocabulary) -> tuple[_Matrix, _Matrix]:
    count = len(vocabulary.texts)
    end = vocabulary.texts.index(_END)
    embeddings = np.stack([_signs(token) for token in range(count)])
    embeddings[:, :_FLAGS] = 0
    embeddings[:, _ONE] = 1
    plain = [byte for byte in range(256) if byte not in vocabulary.successors]
    embeddings[plain, _PLAIN] = _FLAG
    embeddings[list(vocabulary.last), _LAST] = _FLAG

    output = np.zeros_like(embeddings)
    for token, successor in vocabulary.successors.items():
        output[successor, _FLAGS:] += embeddings[token, _FLAGS:] * (_GAIN / (_WIDTH - _FLAGS))
    output[vocabulary.default, _PLAIN] = _GAIN / _FLAG
    output[end, _LAST] = _GAIN / _FLAG
    output[vocabulary.texts.index(_encoded(_CALL)), _LAST] = 0.9 * _GAIN / _FLAG
    for byte in range(0x21, 0x7F):
        output[byte, _ONE] = 900 + 5 * (0x7E - byte)
    for rank, token in enumerate((*_PREFERRED, end)):
        output[token, _ONE] = 1400 + 20 * rank
    return embeddings, output


def _signs(token: int) -> _Matrix:
    digest = hashlib.shake_128(b"scripted token %d" % token).digest(_WIDTH // 8)
    bits = np.unpackbits(np.frombuffer(digest, dtype=np.uint8))
    return bits.astype(np.float32) * 2 - 1


def _write_metadata(writer: gguf.GGUFWriter, script: Script, vocabulary: _Vocabulary) -> None:
    writer.add_name(script.name)
    writer.add_context_length(script.n_ctx)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)
    writer.add_rope_dimension_count(_HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(vocabulary.texts))
    writer.add_token_types(list(vocabulary.types))
    writer.add_token_merges(["Ā Ā"])  # the engine wants the key; these two stand for bytes 0 0, which make no token
    writer.add_eos_token_id(vocabulary.texts.index(_END))
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template(chat_template(script))


def _tensors(embeddings: _Matrix, output: _Matrix) -> Iterator[tuple[str, npt.NDArray[np.float16 | np.float32]]]:
    ones = np.ones(_WIDTH, dtype=np.float32)

    def zeros(rows: int, columns: int) -> npt.NDArray[np.float16]:
        return np.zeros((rows, columns), dtype=np.float16)

    yield "token_embd.weight", embeddings.astype(np.float16)
    yield "output.weight", output.astype(np.float16)
    yield "output_norm.weight", ones
    yield "blk.0.attn_norm.weight", ones
    yield "blk.0.attn_q.weight", zeros(_HEAD, _WIDTH)
    yield "blk.0.attn_k.weight", zeros(_HEAD, _WIDTH)
    yield "blk.0.attn_v.weight", zeros(_HEAD, _WIDTH)
    yield "blk.0.attn_output.weight", zeros(_WIDTH, _HEAD)
    yield "blk.0.ffn_norm.weight", ones
    yield "blk.0.ffn_gate.weight", zeros(_FEED_FORWARD, _WIDTH)
    yield "blk.0.ffn_up.weight", zeros(_FEED_FORWARD, _WIDTH)
    yield "blk.0.ffn_down.weight", zeros(_WIDTH, _FEED_FORWARD)
