"""States of recurrent layers: always F32, of fixed size, one per slot and one more per token that can be rolled back.

A state has two parts: R, the last inputs of a short convolution (or RWKV's shifted tokens), and S, what the layer
remembers. `state_parts` gives their elements for one layer of a model.
"""

from __future__ import annotations

from supervisor.core.memory.deepseek4 import deepseek4_state
from supervisor.core.spec import Layout, ModelSpec, RecurrentFamily

_F32 = 4
_DEFAULT_TAPS = 3  # KDA without a kernel
_QKV = 3


def layer_states(spec: ModelSpec) -> tuple[int, ...]:
    """Return the bytes of one copy of each layer's state."""
    if spec.architecture.layout is Layout.DEEPSEEK4:
        return tuple(deepseek4_state(spec, layer) for layer in range(spec.n_layer_all))
    size = _F32 * sum(state_parts(spec))
    history = _F32 * _ple_history(spec)
    return tuple(
        (size if recurrent else 0) + (history if spec.ple and spec.ple.layers[layer] else 0)
        for layer, recurrent in enumerate(spec.recurrent_layers)
    )


def state_parts(spec: ModelSpec) -> tuple[int, int]:
    """Return the elements of R and of S."""
    ssm, heads = spec.ssm, spec.n_head[0] if spec.n_head else 0
    match spec.architecture.recurrent:
        case None:
            return 0, 0
        case RecurrentFamily.MAMBA | RecurrentFamily.MAMBA2 | RecurrentFamily.DELTA_NET:
            taps = max(ssm.conv_kernel - 1, 0)
            return taps * (ssm.inner + 2 * ssm.group * ssm.state), ssm.state * ssm.inner
        case RecurrentFamily.RWKV:
            return spec.token_shift * spec.n_embd, spec.n_embd * spec.wkv_head_size
        case RecurrentFamily.SHORTCONV:
            return spec.n_embd * max(spec.shortconv_l_cache - 1, 0), 0
        case RecurrentFamily.KDA:
            taps = ssm.conv_kernel - 1 if ssm.conv_kernel else _DEFAULT_TAPS
            return _QKV * taps * heads * spec.kda_head_dim, spec.kda_head_dim**2 * heads
        case RecurrentFamily.LIGHTNING:
            return 0, spec.head_k**2 * heads


def _ple_history(spec: ModelSpec) -> int:
    ple = spec.ple
    if ple is None:
        return 0
    return max(ple.conv_kernel - 1, 0) * ple.ngram_size * spec.hyper_connections * spec.n_embd
