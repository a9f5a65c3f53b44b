"""The launch options: one row per thing that can be chosen for an engine, by llama-server's own names.

From a row come the settings and their bounds, the schema, the example configuration, the table in docs/launch.md, the
flags of `load` and `plan`, the check of what a client sends, and the arguments. The spellings are those of b11434 and
of older builds. Rows stand in the order of the command line: `--rpc` makes the devices that those after it name.
"""

from dataclasses import dataclass
from typing import Literal

from supervisor.core.options.kinds import (
    Adapters,
    AllMebibytes,
    AllTokens,
    Arguments,
    CacheType,
    Environment,
    File,
    Folder,
    JsonObject,
    Layers,
    LongText,
    Name,
    Names,
    Natural,
    Number,
    Overrides,
    Positive,
    Probability,
    Shares,
    Slots,
    SomeTokens,
    Threads,
    Tokens,
)
from supervisor.core.options.table import Mark, option

Embeddings = Literal["auto", "on", "off"]
Switch = Literal["on", "off", "auto"]
SplitMode = Literal["none", "layer", "row", "tensor"]
LoadMode = Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"]
Overcommit = Literal["off", "mmap"]
Pooling = Literal["none", "mean", "cls", "last", "rank"]
RopeScaling = Literal["none", "linear", "yarn"]

CONFIGURATION, FREE, COUNTED, TYPED, RULED = Mark.CONFIGURATION, Mark.FREE, Mark.COUNTED, Mark.TYPED, Mark.RULED


@dataclass(frozen=True)
class LaunchOptions:
    """The options of a model's engine; None, or an empty list, is llama-server's default."""

    ctx_size: Tokens | None = option(
        "--ctx-size -c",
        "context of all slots together; 0: the model's native one",
        FREE | COUNTED | TYPED,
        others="num_ctx n_ctx context context_length context_size max_context",
        example="8k",
    )
    parallel: Slots | None = option(
        "--parallel -np",
        "requests answered in parallel",
        FREE | COUNTED | TYPED,
        others="num_parallel n_parallel slots",
        example="2",
    )
    kv_unified: bool | None = option(
        "--kv-unified -kvu / --no-kv-unified -no-kvu", "one cache that all slots share", FREE | COUNTED | TYPED
    )
    batch_size: SomeTokens | None = option(
        "--batch-size -b", "logical batch", FREE | COUNTED | TYPED, others="num_batch n_batch", example="2048"
    )
    ubatch_size: SomeTokens | None = option(
        "--ubatch-size -ub", "physical batch", FREE | COUNTED | TYPED, others="n_ubatch", example="512"
    )
    cache_type_k: CacheType | None = option(
        "--cache-type-k -ctk", "type of the keys in the cache", FREE | COUNTED | TYPED, others="type_k", example="q8_0"
    )
    cache_type_v: CacheType | None = option(
        "--cache-type-v -ctv",
        "type of the values in the cache",
        FREE | COUNTED | TYPED,
        others="type_v",
        example="q8_0",
    )
    flash_attn: Switch | None = option("--flash-attn -fa", "flash attention", COUNTED | TYPED | RULED, example="auto")
    swa_full: bool = option("--swa-full", "full-size caches for sliding windows", COUNTED | TYPED, default=False)
    context_shift: bool | None = option(
        "--context-shift / --no-context-shift",
        "shift the context when it is full, dropping its beginning; off by default",
        FREE,
        example="false",
    )
    cache_ram: AllMebibytes | None = option(
        "--cache-ram -cram",
        "MiB of the prompt cache; 0: none, -1: no limit",
        FREE | COUNTED,
        example="8192",
    )
    ctx_checkpoints: Natural | None = option(
        "--ctx-checkpoints --swa-checkpoints -ctxcp",
        "checkpoints of the context per slot",
        FREE | COUNTED,
        example="32",
    )
    threads: Threads | None = option(
        "--threads -t",
        "threads on the CPU; left out: the physical cores",
        FREE | TYPED,
        others="num_thread n_threads",
        example="4",
    )
    threads_batch: Threads | None = option(
        "--threads-batch -tb", "threads for batches; left out: as many as `threads`", FREE
    )

    rpc: Names = option(
        "--rpc",
        "`host:port` of llama.cpp's RPC workers, which become the devices RPC0, RPC1, …",
        CONFIGURATION | FREE,
        default=(),
        begins="Placement. The planner chooses what is left out.",
    )
    device: Names | None = option(
        "--device -dev",
        "devices as `llama-server --list-devices` names them, in the order wanted; empty: the CPU alone",
        FREE | COUNTED | TYPED,
        example="[CUDA0, CUDA1]",
    )
    n_gpu_layers: Layers | None = option(
        "--n-gpu-layers --gpu-layers -ngl",
        "layers on devices; the output layer counts as one",
        FREE | COUNTED | TYPED,
        others="num_gpu n_gpu gpu_layer n_layers",
        example="99",
    )
    tensor_split: Shares = option(
        "--tensor-split -ts", "shares of the devices", FREE | COUNTED | TYPED, default=(), example="[3, 1]"
    )
    split_mode: SplitMode | None = option(
        "--split-mode -sm", "`row` and `tensor` cannot be planned", FREE, example="layer"
    )
    main_gpu: Natural | None = option(
        "--main-gpu -mg", "the device of `split_mode: none`, as a place in `device`", FREE, example="0"
    )
    cpu_moe: bool = option(
        "--cpu-moe -cmoe", "experts of all layers stay with the CPU", FREE | COUNTED | TYPED, default=False
    )
    n_cpu_moe: Layers | None = option(
        "--n-cpu-moe -ncmoe", "experts of the first N layers stay with the CPU", FREE | COUNTED | TYPED
    )
    n_cpu_ffn: Layers | None = option(
        "--n-cpu-ffn -ncffn",
        "feed-forward weights of the first N layers of a dense model stay with the CPU",
        FREE | COUNTED,
    )
    override_tensor: Overrides = option(
        "--override-tensor -ot",
        'places of tensors, e.g. `["blk\\\\.0\\\\.=CPU"]`: the first pattern found in a tensor\'s name decides',
        FREE | COUNTED,
        default=(),
    )
    kv_offload: bool | None = option(
        "--kv-offload -kvo / --no-kv-offload -nkvo", "keep caches on the devices of their layers", FREE | COUNTED
    )
    op_offload: bool | None = option(
        "--op-offload / --no-op-offload", "large batches of the CPU's layers are computed on a GPU", FREE | COUNTED
    )
    repack: bool | None = option(
        "--repack / --no-repack -nr", "repack weights on the CPU into a faster layout", FREE | COUNTED
    )
    load_mode: LoadMode | None = option(
        "--load-mode -lm --mmap --mlock --direct-io -dio / --no-mmap --no-direct-io -ndio",
        "how the file is read, and whether its pages may be swapped",
        FREE | RULED,
    )
    fit: Literal["on", "off"] | None = option(
        "--fit -fit",
        "on: llama-server decides on layers, split and context, on the devices of the plan; else the plan does",
        FREE,
    )
    overcommit: Overcommit | None = option(
        "",
        "the supervisor's own: whether weights on the host may be more than its memory, in place of"
        " `placement.overcommit` (docs/planning.md)",
        FREE,
    )

    embeddings: Embeddings = option(
        "--embeddings --embedding",
        "serve embeddings; auto: for models that were made for it",
        COUNTED | TYPED | RULED,
        default="auto",
        begins="Service",
    )
    pooling: Pooling | None = option("--pooling", "how token embeddings are pooled", COUNTED, example="mean")
    reranking: bool = option("--reranking --rerank", "serve reranking", COUNTED, default=False)
    jinja: bool | None = option("--jinja / --no-jinja", "templates of any kind; on where the build has it", FREE)
    chat_template: LongText | None = option(
        "--chat-template", "in place of the model's: one of llama-server's names, or a template's text", FREE
    )
    chat_template_file: File | None = option(
        "--chat-template-file", "the chat template, from a file", CONFIGURATION | FREE
    )
    chat_template_kwargs: JsonObject = option(
        "--chat-template-kwargs",
        'variables of the template, often a switch for reasoning: `{"enable_thinking": false}`',
        FREE | TYPED,
        default={},
    )
    skip_chat_parsing: bool = option(
        "--skip-chat-parsing / --no-skip-chat-parsing", "everything stays in `content`", FREE, default=False
    )
    reasoning: Switch | None = option("--reasoning -rea", "reasoning, for requests that do not set it", FREE | TYPED)
    reasoning_format: Name | None = option(
        "--reasoning-format", "where reasoning goes: none, deepseek, deepseek-legacy, auto", FREE
    )
    reasoning_effort: Name | None = option(
        "--reasoning-effort",
        "level of reasoning, for templates that have levels: default, minimal, low, medium, high, xhigh, max",
        FREE,
    )
    reasoning_budget: AllTokens | None = option(
        "--reasoning-budget", "token budget of reasoning; -1: no limit, 0: none", FREE
    )
    reasoning_budget_message: LongText | None = option(
        "--reasoning-budget-message", "message that ends the reasoning when the budget is used up", FREE
    )
    reasoning_preserve: bool | None = option(
        "--reasoning-preserve / --no-reasoning-preserve", "keep the reasoning of earlier turns in the prompt", FREE
    )
    slot_save_path: Folder | None = option(
        "--slot-save-path",
        "a folder for slots that clients save through `/upstream`, up to `kv_store.max_mib`",
        CONFIGURATION | FREE,
    )
    keep_kv: bool = option(
        "",
        "the supervisor's own: slots are saved before the engine ends and restored by the next (docs/scheduling.md);"
        " not with `slot_save_path`",
        FREE,
        default=False,
    )

    lora: Adapters = option(
        "--lora --lora-scaled",
        "adapters, e.g. `[{path: adapters/style.gguf, scale: 0.5}]`; a path with a colon cannot have a scale",
        CONFIGURATION | RULED,
        default=(),
        begins="Further files",
    )
    mmproj: File | None = option(
        "--mmproj -mm", "the projector, for images and sound", CONFIGURATION | RULED, others="mm"
    )
    mmproj_auto: bool | None = option(
        "--mmproj-auto / --no-mmproj --no-mmproj-auto",
        "look for a projector beside the model, a .gguf with mmproj in its name and the model's width; false: do"
        " without any",
        TYPED | RULED,
    )
    mmproj_offload: bool | None = option("--mmproj-offload / --no-mmproj-offload", "the projector goes to a GPU")
    mmproj_device: Name | None = option("--mmproj-device -mmdev", "the projector's device")

    rope_scaling: RopeScaling | None = option(
        "--rope-scaling",
        "RoPE scaling for positions beyond the native context",
        begins="Longer contexts than the model was trained with",
    )
    rope_scale: Number | None = option("--rope-scale", "the context is this many times the native one")
    rope_freq_base: Number | None = option("--rope-freq-base", "RoPE's base frequency")
    rope_freq_scale: Number | None = option("--rope-freq-scale", "RoPE's frequencies are multiplied by it")
    yarn_orig_ctx: Tokens | None = option("--yarn-orig-ctx", "YaRN: the native context")
    yarn_ext_factor: Number | None = option("--yarn-ext-factor", "YaRN: how much is extrapolated")
    yarn_attn_factor: Number | None = option("--yarn-attn-factor", "YaRN: the scale of attention")
    yarn_beta_slow: Number | None = option("--yarn-beta-slow", "YaRN: where the high correction begins")
    yarn_beta_fast: Number | None = option("--yarn-beta-fast", "YaRN: where the low correction begins")

    spec_type: Names = option(
        "--spec-type --spec-default",
        "kinds: default (the build's own choice), draft-simple, draft-mtp (for models with NextN blocks),"
        " draft-eagle3, ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod, ngram-cache, …; empty: off",
        COUNTED | TYPED | RULED,
        default=(),
        begins="Speculative decoding: tokens are drafted, then verified together. Off unless spec_type names kinds.",
    )
    spec_draft_model: File | None = option(
        "--spec-draft-model --model-draft -md", "a second, smaller model that drafts", CONFIGURATION
    )
    spec_draft_n_max: Natural | None = option(
        "--spec-draft-n-max --draft-max --draft-n --draft", "tokens to draft, at most", COUNTED
    )
    spec_draft_n_min: Natural | None = option(
        "--spec-draft-n-min --draft-min --draft-n-min", "tokens to draft, at least"
    )
    spec_draft_p_min: Probability | None = option(
        "--spec-draft-p-min --draft-p-min", "minimum probability of a drafted token"
    )
    spec_draft_p_split: Probability | None = option(
        "--spec-draft-p-split --draft-p-split", "minimum probability for the draft to branch"
    )
    spec_draft_ngl: Layers | None = option(
        "--spec-draft-ngl --n-gpu-layers-draft --gpu-layers-draft -ngld", "like n_gpu_layers, for the draft model"
    )
    spec_draft_device: Names | None = option(
        "--spec-draft-device --device-draft -devd", "like device, for the draft model"
    )
    spec_draft_type_k: CacheType | None = option(
        "--spec-draft-type-k --cache-type-k-draft -ctkd", "like cache_type_k, for the draft model", COUNTED
    )
    spec_draft_type_v: CacheType | None = option(
        "--spec-draft-type-v --cache-type-v-draft -ctvd", "like cache_type_v, for the draft model", COUNTED
    )
    spec_draft_cpu_moe: bool = option(
        "--spec-draft-cpu-moe --cpu-moe-draft -cmoed", "like cpu_moe, for the draft model", default=False
    )
    spec_draft_n_cpu_moe: Layers | None = option(
        "--spec-draft-n-cpu-moe --spec-draft-ncmoe --n-cpu-moe-draft -ncmoed", "like n_cpu_moe, for the draft model"
    )
    spec_draft_override_tensor: Overrides = option(
        "--spec-draft-override-tensor --override-tensor-draft -otd",
        "like override_tensor, for the draft model",
        default=(),
    )
    spec_ngram_mod_n_min: Natural | None = option("--spec-ngram-mod-n-min", "ngram-mod: tokens to draft, at least")
    spec_ngram_mod_n_max: Natural | None = option("--spec-ngram-mod-n-max", "ngram-mod: tokens to draft, at most")
    spec_ngram_mod_n_match: Positive | None = option("--spec-ngram-mod-n-match", "ngram-mod: tokens that must match")
    spec_ngram_simple_size_n: Positive | None = option(
        "--spec-ngram-simple-size-n", "ngram-simple: tokens of the n-gram looked up"
    )
    spec_ngram_simple_size_m: Positive | None = option("--spec-ngram-simple-size-m", "ngram-simple: tokens to draft")
    spec_ngram_simple_min_hits: Positive | None = option(
        "--spec-ngram-simple-min-hits", "ngram-simple: occurrences of the n-gram, at least"
    )
    spec_ngram_map_k_size_n: Positive | None = option(
        "--spec-ngram-map-k-size-n", "ngram-map-k: tokens of the n-gram looked up"
    )
    spec_ngram_map_k_size_m: Positive | None = option("--spec-ngram-map-k-size-m", "ngram-map-k: tokens to draft")
    spec_ngram_map_k_min_hits: Positive | None = option(
        "--spec-ngram-map-k-min-hits", "ngram-map-k: occurrences of the n-gram, at least"
    )
    spec_ngram_map_k4v_size_n: Positive | None = option(
        "--spec-ngram-map-k4v-size-n", "ngram-map-k4v: tokens of the n-gram looked up"
    )
    spec_ngram_map_k4v_size_m: Positive | None = option("--spec-ngram-map-k4v-size-m", "ngram-map-k4v: tokens to draft")
    spec_ngram_map_k4v_min_hits: Positive | None = option(
        "--spec-ngram-map-k4v-min-hits", "ngram-map-k4v: occurrences of the n-gram, at least"
    )

    extra_args: Arguments = option(
        "",
        'further arguments of llama-server, word by word, e.g. `["--no-warmup"]`',
        default=(),
        begins="Anything else",
    )
    env: Environment = option(
        "",
        "variables of the engine; none through which llama-server reads options",
        CONFIGURATION,
        default={},
    )
