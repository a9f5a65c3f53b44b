"""The output buffer on the host: logits, and embeddings where they are asked for, one row per output."""

from __future__ import annotations

from supervisor.core.memory.context import Context
from supervisor.core.memory.options import EstimateOptions
from supervisor.core.spec import ModelSpec

_F32 = 4


def output_bytes(spec: ModelSpec, options: EstimateOptions, context: Context) -> int:
    """Return the bytes allocated at the start: one row per slot, and as many for a draft context."""
    contexts = 2 if options.drafts else 1
    return contexts * _row(spec, options) * context.n_seq


def output_growth(spec: ModelSpec, options: EstimateOptions, context: Context) -> int:
    """Return the bytes that one batch may add: a row per output; a draft also hands on the embeddings of all tokens."""
    rows = max(context.n_outputs - context.n_seq, 0)
    handed_on = _F32 * spec.n_embd_out * context.n_batch if options.drafts else 0
    return rows * _row(spec, options) + handed_on


def _row(spec: ModelSpec, options: EstimateOptions) -> int:
    embeddings = options.embeddings or spec.architecture.keeps_embeddings
    return _F32 * (spec.n_vocab + (spec.n_embd_out if embeddings else 0))
