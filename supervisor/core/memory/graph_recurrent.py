"""Terms of recurrent layers: projections of the batch, and copies of the states it reads and writes.

With many tokens per slot projections are the widest place, with few of them the states are: each family has a term
for either.
"""

from __future__ import annotations

from supervisor.core.architectures import RecurrentFamily
from supervisor.core.memory.context import Context
from supervisor.core.memory.recurrent import state_parts
from supervisor.core.memory.widths import Widths
from supervisor.core.spec import ModelSpec

_F32 = 4
_LATE_ROWS = {"granitehybrid": 3, "nemotron_h_moe": 2}  # of the residual stream, beside the states


def has_diagonal(spec: ModelSpec) -> bool:
    """Lightning attention weighs every token of a batch against every other."""
    return spec.architecture.recurrent is RecurrentFamily.LIGHTNING


def recurrent_terms(spec: ModelSpec, widths: Widths, context: Context) -> tuple[int, ...]:
    """Elements per token."""
    ssm = spec.ssm
    mixed = ssm.inner + 2 * ssm.group * ssm.state
    states = _per_token(widths.state * context.states, context)
    match spec.architecture.recurrent:
        case RecurrentFamily.MAMBA | RecurrentFamily.MAMBA2:
            projected = 2 * ssm.inner + 2 * ssm.group * ssm.state + ssm.dt_rank
            late = _LATE_ROWS.get(spec.architecture.name, 0) * widths.embd
            return (
                projected + 2 * mixed + ssm.inner + states,
                3 * mixed + ssm.inner + 2 * states + late,
            )
        case RecurrentFamily.DELTA_NET:
            history = _per_token(3 * _F32 * state_parts(spec)[0] * context.states, context)
            convolved = 2 * mixed if spec.architecture.name != "qwen3next" else 3 * mixed + widths.embd // 2
            return (convolved + 2 * states + history,)
        case RecurrentFamily.KDA:
            heads = spec.n_head[0] * spec.kda_head_dim
            return 8 * heads + states, 6 * heads + 2 * states
        case RecurrentFamily.RWKV:
            return 17 * widths.embd + states, 15 * widths.embd + 2 * states
        case RecurrentFamily.LIGHTNING:
            return 3 * widths.heads * context.n_tokens + 4 * widths.embd, 5 * widths.embd + 2 * states
        case _:
            return ()


def _per_token(size: int, context: Context) -> int:
    """Bytes of the whole batch as elements per token, rounded up."""
    return -(-size // (_F32 * context.n_tokens))
