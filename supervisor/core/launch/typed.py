"""Which field of `LaunchOptions` is which option of llama-server: data, read from `--help` of b11434 and older builds.

The first spelling that a build knows is the one that it gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Typed:
    """One field: the spellings that switch it on or carry its value, and those that switch it off."""

    field: str
    on: tuple[str, ...]
    off: tuple[str, ...] = ()


def _rows(text: str) -> Iterator[Typed]:
    """Lines `field: spellings`, and for switches ` / spellings of the negative`."""
    for line in text.strip().splitlines():
        field, _, spellings = line.partition(":")
        on, _, off = spellings.partition("/")
        yield Typed(field.strip(), tuple(on.split()), tuple(off.split()))


VALUED: Mapping[str, Typed] = {
    row.field: row
    for row in _rows("""
ctx_size: --ctx-size -c
parallel: --parallel -np
batch_size: --batch-size -b
ubatch_size: --ubatch-size -ub
cache_type_k: --cache-type-k -ctk
cache_type_v: --cache-type-v -ctv
cache_ram: --cache-ram -cram
ctx_checkpoints: --ctx-checkpoints --swa-checkpoints -ctxcp
threads: --threads -t
threads_batch: --threads-batch -tb
rpc: --rpc
device: --device -dev
n_gpu_layers: --n-gpu-layers --gpu-layers -ngl
tensor_split: --tensor-split -ts
split_mode: --split-mode -sm
main_gpu: --main-gpu -mg
n_cpu_moe: --n-cpu-moe -ncmoe
n_cpu_ffn: --n-cpu-ffn -ncffn
override_tensor: --override-tensor -ot
fit: --fit -fit
pooling: --pooling
chat_template: --chat-template
chat_template_file: --chat-template-file
chat_template_kwargs: --chat-template-kwargs
reasoning: --reasoning -rea
reasoning_format: --reasoning-format
reasoning_effort: --reasoning-effort
reasoning_budget: --reasoning-budget
reasoning_budget_message: --reasoning-budget-message
slot_save_path: --slot-save-path
mmproj_device: --mmproj-device -mmdev
rope_scaling: --rope-scaling
rope_scale: --rope-scale
rope_freq_base: --rope-freq-base
rope_freq_scale: --rope-freq-scale
yarn_orig_ctx: --yarn-orig-ctx
yarn_ext_factor: --yarn-ext-factor
yarn_attn_factor: --yarn-attn-factor
yarn_beta_slow: --yarn-beta-slow
yarn_beta_fast: --yarn-beta-fast
spec_draft_model: --spec-draft-model --model-draft -md
spec_draft_n_max: --spec-draft-n-max --draft-max --draft-n --draft
spec_draft_n_min: --spec-draft-n-min --draft-min --draft-n-min
spec_draft_p_min: --spec-draft-p-min --draft-p-min
spec_draft_p_split: --spec-draft-p-split --draft-p-split
spec_draft_ngl: --spec-draft-ngl --n-gpu-layers-draft --gpu-layers-draft -ngld
spec_draft_device: --spec-draft-device --device-draft -devd
spec_draft_type_k: --spec-draft-type-k --cache-type-k-draft -ctkd
spec_draft_type_v: --spec-draft-type-v --cache-type-v-draft -ctvd
spec_draft_n_cpu_moe: --spec-draft-n-cpu-moe --spec-draft-ncmoe --n-cpu-moe-draft -ncmoed
spec_draft_override_tensor: --spec-draft-override-tensor --override-tensor-draft -otd
spec_ngram_mod_n_min: --spec-ngram-mod-n-min
spec_ngram_mod_n_max: --spec-ngram-mod-n-max
spec_ngram_mod_n_match: --spec-ngram-mod-n-match
spec_ngram_simple_size_n: --spec-ngram-simple-size-n
spec_ngram_simple_size_m: --spec-ngram-simple-size-m
spec_ngram_simple_min_hits: --spec-ngram-simple-min-hits
spec_ngram_map_k_size_n: --spec-ngram-map-k-size-n
spec_ngram_map_k_size_m: --spec-ngram-map-k-size-m
spec_ngram_map_k_min_hits: --spec-ngram-map-k-min-hits
spec_ngram_map_k4v_size_n: --spec-ngram-map-k4v-size-n
spec_ngram_map_k4v_size_m: --spec-ngram-map-k4v-size-m
spec_ngram_map_k4v_min_hits: --spec-ngram-map-k4v-min-hits
""")
}
"""Fields whose option takes a value, in the order of the command line: `--rpc` makes devices for those after it."""

SWITCHES: Mapping[str, Typed] = {
    row.field: row
    for row in _rows("""
kv_unified: --kv-unified -kvu / --no-kv-unified -no-kvu
swa_full: --swa-full
context_shift: --context-shift / --no-context-shift
cpu_moe: --cpu-moe -cmoe
kv_offload: --kv-offload -kvo / --no-kv-offload -nkvo
op_offload: --op-offload / --no-op-offload
repack: --repack / --no-repack -nr
reranking: --reranking --rerank
jinja: --jinja / --no-jinja
skip_chat_parsing: --skip-chat-parsing / --no-skip-chat-parsing
reasoning_preserve: --reasoning-preserve / --no-reasoning-preserve
mmproj_offload: --mmproj-offload / --no-mmproj-offload
spec_draft_cpu_moe: --spec-draft-cpu-moe --cpu-moe-draft -cmoed
""")
}
"""Fields that are on or off."""

SPECIAL: Mapping[str, Typed] = {
    row.field: row
    for row in _rows("""
flash_attn: --flash-attn -fa
load_mode: --load-mode -lm --mmap --mlock --direct-io -dio / --no-mmap --no-direct-io -ndio
embeddings: --embeddings --embedding
lora: --lora --lora-scaled
mmproj: --mmproj -mm
mmproj_auto: --mmproj-auto / --no-mmproj --no-mmproj-auto
spec_type: --spec-type --spec-default
""")
}
"""Fields with a rule of their own in `emit`."""
