"""Well-known models in their real dimensions, as published; files of a header alone, measured without loading them.

Each has the metadata a converted file has, as far as memory depends on it, and the quantisation a common file has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.evidence.architectures import Metadata
from tests.evidence.make import Tensor

Q4, Q8, MXFP4 = "Q4_K", "Q8_0", "MXFP4"


@dataclass(frozen=True)
class KnownModel:
    """`tied`: the file has no output.weight. `biases`: which `.bias` tensors it has, as a regular expression."""

    name: str
    metadata: Metadata = field(hash=False)
    type: str = Q4
    experts_type: str = ""
    tied: bool = False
    biases: str = r"(?!)"
    without: str = r"(?!)"

    def keeps(self, tensor: str) -> bool:
        """Of the tensors that llama.cpp knows for the architecture, those that this model's files have."""
        if tensor == "output.weight":
            return not self.tied
        if tensor.endswith(".bias") and not re.search(self.biases, tensor):
            return "exp_probs_b" in tensor or "ssm_" in tensor
        return not re.search(self.without, tensor)

    def tensors(self, shapes: Iterable[Tensor]) -> Iterator[Tensor]:
        """With types, as `llama-quantize` gives them: matrices quantised, the rest as it is."""
        for tensor in shapes:
            yield Tensor(tensor.name, tensor.shape, self._type(tensor))

    def _type(self, tensor: Tensor) -> str:
        small = len(tensor.shape) < 2 or not tensor.name.endswith(".weight")
        if small or re.search(r"conv1d|shortconv\.conv|gate_inp|_norm\.|ssm_[ad]|altup|laurel|tid2eid", tensor.name):
            return "F32"
        wanted = "Q6_K" if tensor.name in {"token_embd.weight", "output.weight"} and self.type == Q4 else self.type
        if self.experts_type and "_exps." in tensor.name:
            wanted = self.experts_type
        if wanted in {"Q4_K", "Q6_K"} and tensor.shape[0] % 256:
            wanted = "Q5_0" if tensor.shape[0] % 32 == 0 else "F16"
        return wanted if tensor.shape[0] % 32 == 0 else "F16"


def _model(architecture: str, keys: Metadata) -> Metadata:
    """Metadata with the architecture's prefix; the vocabulary as a mere count."""
    common: Metadata = {
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.layer_norm_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    found: Metadata = {"general.architecture": architecture, "tokenizer.ggml.model": "no_vocab"}
    return found | {f"{architecture}.{key}": value for key, value in {**common, **keys}.items()}


def _size(layers: int, embedding: int, feed_forward: int | list[int], vocabulary: int, context: int) -> Metadata:
    return {
        "block_count": layers,
        "embedding_length": embedding,
        "feed_forward_length": feed_forward,
        "vocab_size": vocabulary,
        "context_length": context,
    }


def _heads(heads: int, kv_heads: int | list[int], head: int = 0, value: int = 0) -> Metadata:
    found: Metadata = {"attention.head_count": heads, "attention.head_count_kv": kv_heads}
    if head:
        found |= {"attention.key_length": head, "attention.value_length": value or head}
    return found


def _experts(count: int, used: int, feed_forward: int, shared: int = 0, dense: int = 0) -> Metadata:
    return {
        "expert_count": count,
        "expert_used_count": used,
        "expert_feed_forward_length": feed_forward,
        "expert_shared_count": shared,
        "expert_shared_feed_forward_length": shared * feed_forward,
        "leading_dense_block_count": dense,
        "expert_gating_func": 2,
        "expert_weights_scale": 1.0,
    }


def _ssm(inner: int, state: int, heads: int, groups: int, kernel: int = 4) -> Metadata:
    return {
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": heads,
        "ssm.group_count": groups,
        "ssm.conv_kernel": kernel,
    }


def _latent(heads: int, q_lora: int = 1536) -> Metadata:
    return {
        **_heads(heads, 1, 576, 512),
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
        "attention.q_lora_rank": q_lora,
        "attention.kv_lora_rank": 512,
        "rope.dimension_count": 64,
    }


def _at(layers: int, places: Iterable[int], heads: int) -> list[int]:
    """KV heads in these layers, none in the others."""
    chosen = set(places)
    return [heads if layer in chosen else 0 for layer in range(layers)]


_NEMOTRON = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"

MODELS = (
    KnownModel("llama-3.1-8b", _model("llama", _size(32, 4096, 14336, 128256, 131072) | _heads(32, 8))),
    KnownModel("llama-3.3-70b", _model("llama", _size(80, 8192, 28672, 128256, 131072) | _heads(64, 8))),
    KnownModel(
        "mistral-small-24b",
        _model("llama", _size(40, 5120, 32768, 131072, 131072) | _heads(32, 8, 128) | {"rope.dimension_count": 128}),
        without="rope_freqs",
    ),
    KnownModel(
        "mixtral-8x7b",
        _model("llama", _size(32, 4096, 14336, 32000, 32768) | _heads(32, 8) | _experts(8, 2, 14336)),
        without="rope_freqs|_shexp",
    ),
    KnownModel("qwen3-8b", _model("qwen3", _size(36, 4096, 12288, 151936, 40960) | _heads(32, 8, 128))),
    KnownModel("qwen3-32b", _model("qwen3", _size(64, 5120, 25600, 151936, 40960) | _heads(64, 8, 128)), type=Q8),
    KnownModel(
        "qwen2.5-72b", _model("qwen2", _size(80, 8192, 29568, 152064, 32768) | _heads(64, 8)), biases="attn_[qkv].bias"
    ),
    KnownModel(
        "qwen3-30b-a3b",
        _model("qwen3moe", _size(48, 2048, 6144, 151936, 262144) | _heads(32, 4, 128) | _experts(128, 8, 768)),
    ),
    KnownModel(
        "qwen3-235b-a22b",
        _model("qwen3moe", _size(94, 4096, 12288, 151936, 262144) | _heads(64, 4, 128) | _experts(128, 8, 1536)),
    ),
    KnownModel(
        "qwen3-next-80b-a3b",
        _model(
            "qwen3next",
            _size(48, 2048, 5120, 151936, 262144)
            | _heads(16, 2, 256)
            | _experts(512, 10, 512, 1)
            | _ssm(4096, 128, 32, 16)
            | {"rope.dimension_count": 64},
        ),
    ),
    KnownModel(
        "qwen3.5-27b",
        _model(
            "qwen35",
            _size(64, 5120, 17408, 248320, 262144)
            | _heads(24, 4, 256)
            | _ssm(6144, 128, 48, 16)
            | {"rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0], "full_attention_interval": 4},
        ),
    ),
    KnownModel(
        "qwen3.5-397b-a17b",
        _model(
            "qwen35moe",
            _size(60, 4096, 1024, 248320, 262144)
            | _heads(32, 2, 256)
            | _experts(512, 10, 1024, 1)
            | _ssm(8192, 128, 64, 16)
            | {"rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0], "full_attention_interval": 4},
        ),
    ),
    KnownModel(
        "gemma-2-27b",
        _model(
            "gemma2",
            _size(46, 4608, 36864, 256000, 8192) | _heads(32, 16, 128) | {"attention.sliding_window": 4096},
        ),
        tied=True,
    ),
    KnownModel(
        "gemma-3-27b",
        _model(
            "gemma3",
            _size(62, 5376, 21504, 262208, 131072) | _heads(32, 16, 128) | {"attention.sliding_window": 1024},
        ),
        type=Q8,
        tied=True,
    ),
    KnownModel(
        "gemma-3-4b",
        _model(
            "gemma3", _size(34, 2560, 10240, 262208, 131072) | _heads(8, 4, 256) | {"attention.sliding_window": 1024}
        ),
        tied=True,
    ),
    KnownModel(
        "gemma-3n-e4b",
        _model(
            "gemma3n", _size(35, 2048, 16384, 262400, 32768) | _heads(8, 2, 256) | {"attention.sliding_window": 512}
        ),
        tied=True,
    ),
    KnownModel(
        "gemma-4-31b",
        _model(
            "gemma4",
            _size(60, 5376, 21504, 262144, 262144)
            | _heads(32, [4 if layer % 6 == 5 else 16 for layer in range(60)], 512)
            | {
                "attention.key_length_swa": 256,
                "attention.value_length_swa": 256,
                "attention.sliding_window": 1024,
                "attention.sliding_window_pattern": [int(layer % 6 != 5) for layer in range(60)],
                "embedding_length_per_layer_input": 0,
                "attention.shared_kv_layers": 0,
            },
        ),
        tied=True,
    ),
    KnownModel(
        "gemma-4-e4b",
        _model(
            "gemma4",
            _size(42, 2560, 10240, 262144, 131072)
            | _heads(8, 2, 512)
            | {
                "attention.key_length_swa": 256,
                "attention.value_length_swa": 256,
                "attention.sliding_window": 512,
                "attention.sliding_window_pattern": [int(layer % 6 != 5) for layer in range(42)],
                "embedding_length_per_layer_input": 256,
                "attention.shared_kv_layers": 18,
            },
        ),
        tied=True,
    ),
    KnownModel(
        "gpt-oss-20b",
        _model(
            "gpt-oss",
            _size(24, 2880, 2880, 201088, 131072)
            | _heads(64, 8, 64)
            | _experts(32, 4, 2880)
            | {"attention.sliding_window": 128},
        ),
        type=Q8,
        experts_type=MXFP4,
        biases="",
    ),
    KnownModel(
        "gpt-oss-120b",
        _model(
            "gpt-oss",
            _size(36, 2880, 2880, 201088, 131072)
            | _heads(64, 8, 64)
            | _experts(128, 4, 2880)
            | {"attention.sliding_window": 128},
        ),
        type=Q8,
        experts_type=MXFP4,
        biases="",
    ),
    KnownModel(
        "deepseek-v3",
        _model("deepseek2", _size(61, 7168, 18432, 129280, 163840) | _latent(128) | _experts(256, 8, 2048, 1, 3)),
    ),
    KnownModel(
        "kimi-k2",
        _model("deepseek2", _size(61, 7168, 18432, 163840, 131072) | _latent(64) | _experts(384, 8, 2048, 1, 1)),
    ),
    KnownModel(
        "glm-4.6",
        _model(
            "glm4moe",
            _size(93, 5120, 12288, 151552, 202752)
            | _heads(96, 8, 128)
            | _experts(160, 8, 1536, 1, 3)
            | {"nextn_predict_layers": 1, "rope.dimension_count": 64},
        ),
        biases="attn_[qkv].bias",
    ),
    KnownModel(
        "glm-4.5-air",
        _model(
            "glm4moe",
            _size(47, 4096, 10944, 151552, 131072)
            | _heads(96, 8, 128)
            | _experts(128, 8, 1408, 1, 1)
            | {"nextn_predict_layers": 1, "rope.dimension_count": 64},
        ),
        biases="attn_[qkv].bias",
        without="attn_[qk]_norm",
    ),
    KnownModel(
        "granite-4-h-small",
        _model(
            "granitehybrid",
            _size(40, 4096, 768, 100352, 131072)
            | _heads(32, _at(40, (5, 15, 25, 35), 8))
            | _experts(72, 10, 768)
            | _ssm(8192, 128, 128, 1)
            | {"expert_shared_feed_forward_length": 1536, "expert_shared_count": 1, "logit_scale": 16.0},
        ),
        tied=True,
    ),
    KnownModel(
        "mamba2-2.7b", _model("mamba2", _size(64, 2560, 0, 50288, 1048576) | _ssm(5120, 128, 80, 1)), type="F16"
    ),
    KnownModel(
        "mamba-2.8b",
        _model("mamba", _size(64, 2560, 0, 50280, 1048576) | _ssm(5120, 16, 160, 0)),
        type="F16",
        tied=True,
    ),
    KnownModel(
        "llama-4-scout",
        _model(
            "llama4",
            _size(48, 5120, 16384, 202048, 10485760)
            | _heads(40, 8, 128)
            | _experts(16, 1, 8192)
            | {"interleave_moe_layer_step": 1, "rope.dimension_count": 128},
        ),
    ),
    KnownModel(
        "phi-4",
        _model("phi3", _size(40, 5120, 17920, 100352, 16384) | _heads(40, 10) | {"rope.dimension_count": 128}),
    ),
    KnownModel(
        "command-r-35b",
        _model("command-r", _size(40, 8192, 22528, 256000, 131072) | _heads(64, 64) | {"logit_scale": 0.0625}),
        tied=True,
        without="attn_[qk]_norm",
    ),
    KnownModel(
        "command-a-111b",
        _model(
            "cohere2",
            _size(64, 12288, 36864, 256000, 131072)
            | _heads(96, 8, 128)
            | {"attention.sliding_window": 4096, "logit_scale": 0.25, "rope.dimension_count": 128},
        ),
        tied=True,
    ),
    KnownModel(
        "nemotron-nano-9b-v2",
        _model(
            "nemotron_h",
            _size(56, 4480, [15680 if kind == "-" else 0 for kind in _NEMOTRON], 131072, 131072)
            | _heads(40, [8 if kind == "*" else 0 for kind in _NEMOTRON], 128)
            | _ssm(10240, 128, 128, 8),
        ),
    ),
    KnownModel(
        "jamba-reasoning-3b",
        _model(
            "jamba",
            _size(28, 2560, 8192, 65536, 262144) | _heads(20, _at(28, (7, 21), 1)) | _ssm(5120, 16, 160, 0),
        ),
        tied=True,
    ),
    KnownModel(
        "lfm2-1.2b",
        _model(
            "lfm2",
            _size(16, 2048, 8192, 65536, 128000)
            | _heads(32, _at(16, (2, 5, 8, 10, 12, 14), 8))
            | {"shortconv.l_cache": 3},
        ),
        tied=True,
    ),
    KnownModel(
        "lfm2-8b-a1b",
        _model(
            "lfm2moe",
            _size(24, 2048, 7168, 65536, 128000)
            | _heads(32, _at(24, (2, 6, 10, 14, 18, 21), 8))
            | _experts(32, 4, 1792, 0, 2)
            | {"shortconv.l_cache": 3},
        ),
        tied=True,
    ),
    KnownModel(
        "minimax-m2",
        _model(
            "minimax-m2",
            _size(62, 3072, 1536, 200064, 196608)
            | _heads(48, 8, 128)
            | _experts(256, 8, 1536)
            | {"rope.dimension_count": 64},
        ),
    ),
    KnownModel("olmo2-32b", _model("olmo2", _size(64, 5120, 27648, 100352, 4096) | _heads(40, 8))),
    KnownModel(
        "olmo3-32b",
        _model("olmo2", _size(64, 5120, 27648, 100278, 65536) | _heads(40, 8) | {"attention.sliding_window": 4096}),
    ),
    KnownModel(
        "falcon-h1-34b",
        _model("falcon-h1", _size(72, 5120, 21504, 261120, 262144) | _heads(20, 4, 128) | _ssm(4096, 256, 32, 2)),
        without="ssm_norm",
    ),
    KnownModel(
        "seed-oss-36b",
        _model("seed_oss", _size(64, 5120, 27648, 155136, 524288) | _heads(80, 8, 128)),
        biases="attn_[qkv].bias",
    ),
    KnownModel(
        "ernie-4.5-21b-a3b",
        _model(
            "ernie4_5-moe",
            _size(28, 2560, 12288, 103424, 131072)
            | _heads(20, 4, 128)
            | _experts(64, 6, 1536, 2, 1)
            | {"interleave_moe_layer_step": 1},
        ),
        tied=True,
    ),
    KnownModel(
        "exaone-4-32b",
        _model("exaone4", _size(64, 5120, 27392, 102400, 131072) | _heads(40, 8) | {"attention.sliding_window": 4096}),
    ),
    KnownModel(
        "kimi-linear-48b-a3b",
        _model(
            "kimi-linear",
            _size(27, 2304, 9216, 163840, 1048576)
            | _latent(32, 0)
            | _experts(256, 8, 1024, 1, 1)
            | {
                "attention.head_count_kv": _at(27, (3, 7, 11, 15, 19, 23, 26), 1),
                "ssm.conv_kernel": 4,
                "kda.head_dim": 128,
            },
        ),
    ),
    KnownModel(
        "deepseek-v3.2",
        _model(
            "deepseek32",
            _size(61, 7168, 18432, 129280, 163840)
            | _latent(128)
            | _experts(256, 8, 2048, 1, 3)
            | {
                "attention.indexer.head_count": 64,
                "attention.indexer.key_length": 128,
                "attention.indexer.top_k": 2048,
            },
        ),
        biases="indexer",
    ),
    KnownModel("smollm3-3b", _model("smollm3", _size(36, 2048, 11008, 128256, 65536) | _heads(16, 4)), tied=True),
)
BY_NAME = {model.name: model for model in MODELS}
