"""Normalise the requested context as `llama_context` does: cells, streams, batches."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.memory.options import EstimateOptions
from supervisor.core.spec import ModelSpec

CELL_PAD = 256
_AUTO_SLOTS = 4


@dataclass(frozen=True, slots=True)
class Context:
    """The context as the engine will run it.

    Attributes:
        n_ctx: tokens of all slots together.
        cells: rows of a cache in one stream; the context of one slot.
        streams: one per slot, or a single one that all slots share.
        n_seq: slots.
        rollbacks: copies of a recurrent state that speculative decoding keeps beside it.
        n_outputs: rows of logits that one micro-batch may put out.
        n_tokens: tokens of a micro-batch, as the compute buffers are reserved for them.
    """

    n_ctx: int
    cells: int
    streams: int
    n_seq: int
    n_batch: int
    n_ubatch: int
    rollbacks: int
    n_outputs: int
    swa_full: bool
    flash_attn: bool

    @property
    def unified(self) -> bool:
        return self.streams == 1 and self.n_ctx == self.cells

    @property
    def n_tokens(self) -> int:
        return padded(min(self.n_ctx, self.n_ubatch), self.n_seq)

    @property
    def states(self) -> int:
        """Copies of a recurrent state."""
        return self.n_seq * (1 + self.rollbacks)


def padded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def resolve_context(spec: ModelSpec, options: EstimateOptions) -> Context:
    """Return the main context."""
    n_seq = _AUTO_SLOTS if options.parallel is None else max(options.parallel, 1)
    unified = options.parallel is None or bool(options.kv_unified)
    asked = options.ctx_size or spec.n_ctx_train
    n_batch, n_ubatch = _batches(spec, options, asked)
    n_ctx = padded(asked, CELL_PAD)
    cells = n_ctx if unified else padded(n_ctx // n_seq, CELL_PAD)
    streams = 1 if unified else n_seq
    n_outputs = n_seq * (1 + options.draft_n_max) if options.drafts else n_seq
    if options.embeddings or spec.architecture.all_outputs:
        n_outputs = n_batch
    return Context(
        n_ctx=cells * streams,
        cells=cells,
        streams=streams,
        n_seq=n_seq,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        rollbacks=options.draft_n_max if options.drafts and spec.architecture.rollback else 0,
        n_outputs=min(n_batch, n_outputs),
        swa_full=options.swa_full,
        flash_attn=options.flash_attn != "off" and spec.architecture.flash_attention,
    )


def _batches(spec: ModelSpec, options: EstimateOptions, asked: int) -> tuple[int, int]:
    batch = options.batch_size
    ubatch = options.ubatch_size or batch
    if options.embeddings:
        batch = min(batch, ubatch)
    if spec.causal:
        batch = min(batch, asked)
    return batch, min(batch, ubatch)
