"""Terms of recurrent layers: projections of the batch, and copies of the states it reads and writes.

With many tokens per slot projections are the widest place, with few of them the states are: each family has a term
for either.
"""

from __future__ import annotations

from supervisor.core.memory.context import Context
from supervisor.core.memory.recurrent import state_parts
from supervisor.core.memory.widths import Widths
from supervisor.core.spec import ModelSpec, RecurrentFamily

_F32 = 4


def has_diagonal(spec: ModelSpec) -> bool:
    """Return whether every token of a batch is weighed against every other, as in lightning attention."""
    return spec.architecture.recurrent is RecurrentFamily.LIGHTNING


def recurrent_terms(spec: ModelSpec, widths: Widths, context: Context) -> tuple[int, ...]:
    """Return elements per token."""
    ssm = spec.ssm
    mixed = ssm.inner + 2 * ssm.group * ssm.state
    states = _per_token(widths.state * context.states, context)
    match spec.architecture.recurrent:
        case RecurrentFamily.MAMBA | RecurrentFamily.MAMBA2:
            projected = 2 * ssm.inner + 2 * ssm.group * ssm.state + ssm.dt_rank
            older = spec.architecture.recurrent is RecurrentFamily.MAMBA
            beside = 2 * ssm.state if older else 0
            rows = spec.architecture.graph.late_rows
            late = (int(older) if rows is None else rows) * widths.embd
            return (
                projected + 2 * mixed + ssm.inner + states + beside,
                3 * mixed + ssm.inner + 2 * states + late,
            )
        case RecurrentFamily.DELTA_NET:
            history = _per_token(3 * _F32 * state_parts(spec)[0] * context.states, context)
            read = _per_token(_F32 * state_parts(spec)[1] * context.states, context)
            crowded = widths.embd < read <= mixed  # states are read to where the projections were
            convolved = (3 if crowded else 2) * mixed
            if spec.architecture.graph.split_qkvz:
                convolved = 3 * mixed + widths.embd // 2
            return (convolved + 2 * states + history,)
        case RecurrentFamily.KDA:
            heads = spec.n_head[0] * spec.kda_head_dim
            return 8 * heads + states, 6 * heads + 2 * states
        case RecurrentFamily.RWKV:
            beside = widths.ffn + 8 * widths.embd + states
            return 17 * widths.embd + states, 15 * widths.embd + 2 * states, beside
        case RecurrentFamily.LIGHTNING:
            return 2 * widths.heads * context.n_tokens + 4 * widths.embd, 5 * widths.embd + 2 * states
        case _:
            return ()


def _per_token(size: int, context: Context) -> int:
    """Return bytes of the whole batch as elements per token, rounded up."""
    return -(-size // (_F32 * context.n_tokens))
