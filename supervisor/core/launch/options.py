"""What can be chosen for one engine. Names are llama-server's long ones, with underscores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from supervisor.core.gguf import GgufHeader
from supervisor.core.spec import lookup

Embeddings = Literal["auto", "on", "off"]
Switch = Literal["on", "off", "auto"]
SplitMode = Literal["none", "layer", "row", "tensor"]
LoadMode = Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]
Overcommit = Literal["off", "mmap"]
RopeScaling = Literal["none", "linear", "yarn"]

MACHINE_FIELDS = frozenset({"chat_template_file", "env", "lora", "mmproj", "rpc", "slot_save_path", "spec_draft_model"})
"""Options that name files, hosts or variables of the machine: only the configuration may set them, no client."""


@dataclass(frozen=True)
class LoraAdapter:
    """An adapter's GGUF file, and how strongly it is applied."""

    path: str
    scale: float = 1.0


@dataclass(frozen=True)
class LaunchOptions:
    """What can be chosen per model; None, or an empty list, is llama-server's default. docs/launch.md explains each.

    Attributes:
        ctx_size: tokens of all slots together; 0: the model's native context.
        device: names in llama.cpp's spelling, in the order wanted; empty: no device at all.
        override_tensor: `PATTERN=BUFFER TYPE` each; the first whose pattern is found in a tensor's name counts.
        embeddings: `auto`: on for models that are made for it.
        chat_template_kwargs: what templates get as variables, `enable_thinking` for one.
        mmproj, mmproj_auto: the projector's file; without one, whether to look for it beside the model. False: none.
        spec_type: kinds of speculative decoding, `default` for the build's own choice; empty: none.
        spec_draft_model: the file of a second model that drafts.
        cache_ram: MiB. cpu_moe: experts of all layers stay with the CPU; n_cpu_moe: of the first N.
        extra_args: further arguments of llama-server. env: added to the engine's environment.
    """

    ctx_size: int | None = None
    parallel: int | None = None
    kv_unified: bool | None = None
    batch_size: int | None = None
    ubatch_size: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    flash_attn: Switch | None = None
    swa_full: bool = False
    context_shift: bool | None = None
    cache_ram: int | None = None
    ctx_checkpoints: int | None = None
    threads: int | None = None
    threads_batch: int | None = None
    # where it goes
    rpc: tuple[str, ...] = ()
    device: tuple[str, ...] | None = None
    n_gpu_layers: int | None = None
    tensor_split: tuple[float, ...] = ()
    split_mode: SplitMode | None = None
    main_gpu: int | None = None
    cpu_moe: bool = False
    n_cpu_moe: int | None = None
    n_cpu_ffn: int | None = None
    override_tensor: tuple[str, ...] = ()
    kv_offload: bool | None = None
    op_offload: bool | None = None
    repack: bool | None = None
    load_mode: LoadMode | None = None
    fit: Literal["on", "off"] | None = None
    overcommit: Overcommit | None = None  # ours: whether the host's weights may be more than its memory
    # what it serves
    embeddings: Embeddings = "auto"
    pooling: str | None = None
    reranking: bool = False
    jinja: bool | None = None
    chat_template: str | None = None
    chat_template_file: str | None = None
    chat_template_kwargs: Mapping[str, object] = field(default_factory=dict)
    skip_chat_parsing: bool = False
    reasoning: Switch | None = None
    reasoning_format: str | None = None
    reasoning_effort: str | None = None
    reasoning_budget: int | None = None
    reasoning_budget_message: str | None = None
    reasoning_preserve: bool | None = None
    slot_save_path: str | None = None
    keep_kv: bool = False  # ours: slots are saved before the engine ends, and restored by the next one
    # further files
    lora: tuple[LoraAdapter, ...] = ()
    mmproj: str | None = None
    mmproj_auto: bool | None = None
    mmproj_offload: bool | None = None
    mmproj_device: str | None = None
    # long contexts
    rope_scaling: RopeScaling | None = None
    rope_scale: float | None = None
    rope_freq_base: float | None = None
    rope_freq_scale: float | None = None
    yarn_orig_ctx: int | None = None
    yarn_ext_factor: float | None = None
    yarn_attn_factor: float | None = None
    yarn_beta_slow: float | None = None
    yarn_beta_fast: float | None = None
    # speculative decoding
    spec_type: tuple[str, ...] = ()
    spec_draft_model: str | None = None
    spec_draft_n_max: int | None = None
    spec_draft_n_min: int | None = None
    spec_draft_p_min: float | None = None
    spec_draft_p_split: float | None = None
    spec_draft_ngl: int | None = None
    spec_draft_device: tuple[str, ...] | None = None
    spec_draft_type_k: str | None = None
    spec_draft_type_v: str | None = None
    spec_draft_cpu_moe: bool = False
    spec_draft_n_cpu_moe: int | None = None
    spec_draft_override_tensor: tuple[str, ...] = ()
    spec_ngram_mod_n_min: int | None = None
    spec_ngram_mod_n_max: int | None = None
    spec_ngram_mod_n_match: int | None = None
    spec_ngram_simple_size_n: int | None = None
    spec_ngram_simple_size_m: int | None = None
    spec_ngram_simple_min_hits: int | None = None
    spec_ngram_map_k_size_n: int | None = None
    spec_ngram_map_k_size_m: int | None = None
    spec_ngram_map_k_min_hits: int | None = None
    spec_ngram_map_k4v_size_n: int | None = None
    spec_ngram_map_k4v_size_m: int | None = None
    spec_ngram_map_k4v_min_hits: int | None = None
    # anything else
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelFacts:
    """What a launch must know of the model: its header's pooling, whether it is an encoder, the projector beside it."""

    pooling: bool = False
    encoder: bool = False
    projector: str | None = None


def facts_of(header: GgufHeader, projector: str | None = None) -> ModelFacts:
    """What the header says; pooling type 0 is "none" (llama.cpp's `llama_pooling_type`)."""
    return ModelFacts(bool(header.pooling_type), lookup(header.architecture or "").only_embeds, projector)


def serves_embeddings(options: LaunchOptions, facts: ModelFacts) -> bool:
    """Whether the engine will make embeddings."""
    if options.reranking or options.embeddings == "on":
        return True
    made_for_it = facts.pooling or facts.encoder or options.pooling is not None
    return options.embeddings == "auto" and made_for_it


def projector_of(options: LaunchOptions, facts: ModelFacts) -> str | None:
    """The projector's file that will be loaded."""
    if options.mmproj_auto is False:
        return None
    return options.mmproj or (facts.projector if options.mmproj_auto else None)
