"""The options of the estimate: llama-server's own, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from supervisor.core.memory.backends import Backend, backend

FlashAttention = Literal["auto", "on", "off"]
Speculative = Literal["none", "draft-mtp"]


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """The way in which a model would be started.

    Attributes:
        ctx_size: tokens; None or 0: the model's native context.
        parallel: slots; None: what the server does by itself, 4 slots that share one cache.
        kv_unified: one cache for all slots; counts where `parallel` is given, None is llama-server's no.
        n_gpu_layers: layers on devices, the output layer counts as one; None or negative: all.
        tensor_split: shares of the devices; empty: equal ones (llama-server splits by free memory).
        devices: names of the accelerators in llama.cpp's order; empty: there is none.
        n_cpu_moe, cpu_moe: experts of the first n layers, or of all, stay in the host's memory.
        override_tensors: (regular expression, buffer type) pairs; the first that is found in a name counts.
        offload_kv: caches live on the device of their layer.
        embeddings: the server makes embeddings: whole batches are put out.
        speculative, draft_n_max: `draft-mtp` drafts with the model's own NextN blocks.
        cache_type_k_draft, cache_type_v_draft: of the draft's cache.
        backend: of the devices: cuda, vulkan, metal, …; several joined by commas. Empty: they compute everything.
        repack: weights on the CPU may be repacked, which takes memory that is not the file's.
        op_offload: large batches are computed on the first device with weights that live on the CPU.
        mmproj: bytes of the projector's file; None: no projector.
        cache_ram: MiB of the prompt cache; -1: no limit, 0: off.
        ctx_checkpoints: per slot; 0: none.
    """

    ctx_size: int | None = None
    parallel: int | None = None
    kv_unified: bool | None = None
    batch_size: int = 2048
    ubatch_size: int = 512
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: FlashAttention = "auto"
    swa_full: bool = False
    n_gpu_layers: int | None = None
    tensor_split: tuple[float, ...] = ()
    devices: tuple[str, ...] = ("GPU0",)
    n_cpu_moe: int = 0
    cpu_moe: bool = False
    override_tensors: tuple[tuple[str, str], ...] = ()
    offload_kv: bool = True
    embeddings: bool = False
    speculative: Speculative = "none"
    draft_n_max: int = 3
    cache_type_k_draft: str = "f16"
    cache_type_v_draft: str = "f16"
    backend: str = ""
    repack: bool = True
    op_offload: bool = True
    mmproj: int | None = None
    cache_ram: int = 8192
    ctx_checkpoints: int = 32

    @property
    def traits(self) -> Backend:
        return backend(self.backend)

    @property
    def drafts(self) -> bool:
        return self.speculative == "draft-mtp"
