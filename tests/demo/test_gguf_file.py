"""The writer of GGUF files, against gguf-py: the same bytes for the same content."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import gguf as reference
import numpy as np

from supervisor.demo import gguf_file as gguf
from supervisor.demo.maker import MAKER_VERSION, write_scripted_gguf
from supervisor.demo.script import Reply, Script

_TOKENS = ["Ā", "", "wörd 🦙", "<|im_end|>"]
_MATRIX = np.array([[1, -2.5, 0.1], [0, 65504, -1e-7]], dtype=np.float16)
_VECTOR = np.array([1, -0.5, 3e38, 0, 7], dtype=np.float32)
_SCRIPT = Script("pinned", "Hello.", (Reply("again", "Hello, again.", endless=True),), after_tool="Done.")


def test_the_file_is_gguf_pys_byte_for_byte(tmp_path: Path) -> None:
    values = {
        "general.architecture": gguf.text("llama"),
        "general.name": gguf.text("Grüße"),
        "llama.block_count": gguf.u32(2**32 - 1),
        "llama.attention.layer_norm_rms_epsilon": gguf.f32(1e-6),
        "tokenizer.ggml.tokens": gguf.texts(_TOKENS),
        "tokenizer.ggml.token_type": gguf.i32s([1, -1, 3, 2**31 - 1]),
        "tokenizer.ggml.add_bos_token": gguf.flag(True),
    }
    tensors = [
        gguf.Tensor("matrix", (3, 2), gguf.F16, struct.pack("<6e", *_MATRIX.flatten())),
        gguf.Tensor("vector", (5,), gguf.F32, struct.pack("<5f", *_VECTOR)),
    ]
    _write_with_gguf_py(tmp_path / "theirs.gguf")
    assert gguf.whole_file(values, tensors) == (tmp_path / "theirs.gguf").read_bytes()


def _write_with_gguf_py(path: Path) -> None:
    writer = reference.GGUFWriter(path, "llama")
    writer.add_name("Grüße")
    writer.add_block_count(2**32 - 1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_token_list(_TOKENS)
    writer.add_token_types([1, -1, 3, 2**31 - 1])
    writer.add_add_bos_token(True)
    writer.add_tensor("matrix", _MATRIX)
    writer.add_tensor("vector", _VECTOR)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf_py_reads_a_scripted_model(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_scripted_gguf(path, _SCRIPT)
    read = reference.GGUFReader(path)
    assert read.fields["general.name"].contents() == "pinned"
    assert read.fields["llama.context_length"].contents() == 32768
    tokens = read.fields["tokenizer.ggml.tokens"].contents()
    assert len(tokens) == len(set(tokens)) == len(read.fields["tokenizer.ggml.token_type"].contents())
    tensors = {tensor.name: tensor.data for tensor in read.tensors}
    embeddings = tensors["token_embd.weight"]
    assert embeddings.shape == tensors["output.weight"].shape == (len(tokens), 128)
    assert set(np.unique(embeddings[:, 3:])) == {-1, 1}
    assert (tensors["output_norm.weight"] == 1).all()
    assert not tensors["blk.0.attn_q.weight"].any()


def test_another_file_for_the_same_script_is_another_version_of_the_maker(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_scripted_gguf(path, _SCRIPT)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert (MAKER_VERSION, digest) == (1, "dda9964bd629c6a9f61e51e98c67957e851f8be805e0ef364fb8d3e7bb9bb88c")
