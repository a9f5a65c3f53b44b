"""The rules of `extra_args`: every option of llama-server b11434, and older spellings, in one of four classes.

- a field: there is a typed option for it, which must be used, because plans and estimates have to know it;
- never: it would take the engine out of our hands;
- configuration: it names files or hosts, or reaches the machine in another way: not for clients of the REST interface;
- anybody: all others in this table.

An option that is not in this table is one of a newer build: only the configuration may give it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from supervisor.core.options import LaunchOptions, Option, options_of

Level = Literal["field", "never", "configuration", "anybody"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A class, and the field's name or the reason; `client` marks a field that clients may set."""

    level: Level
    text: str = ""
    client: bool = True


_ADDRESS = "the supervisor chooses the address; clients use the supervisor's"
_SECRET = "the engine can be reached by the supervisor alone; keys and TLS belong in front of it"
_BROWSER = "browsers cannot reach the engine; pages talk to the supervisor"
_MODEL = "the supervisor chooses the model and its files; load another model, or name files in the configuration"
_ENDS = "it makes the engine print something and exit"
_RUNS = "it lets the engine run programs or read files for clients, who cannot reach that through the supervisor"
_LOG = "the supervisor reads and keeps the engine's log"
_OURS = "the supervisor sets it itself"
_GONE = "llama.cpp has removed it"
_NEVER: Mapping[str, str] = {
    "--host --port --reuse-port --api-prefix": _ADDRESS,
    "--api-key --api-key-file --ssl-key-file --ssl-cert-file": _SECRET,
    "--cors-origins --cors-methods --cors-headers --cors-credentials --no-cors-credentials": _BROWSER,
    "--path --ui-config --webui-config --ui-config-file --webui-config-file": _BROWSER,
    "-m --model -mu --model-url -a --alias -hf -hfr --hf-repo -hff --hf-file -hft --hf-token -dr --docker-repo": _MODEL,
    "--spec-draft-hf -hfd -hfrd --hf-repo-draft -mmu --mmproj-url": _MODEL,
    "--models-dir --models-preset --models-max --models-autoload --no-models-autoload": _MODEL,
    "--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default": _MODEL,
    "--fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default": _MODEL,
    "--gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default": _MODEL,
    "-h --help --usage --version -cl --cache-list --completion-bash --list-devices": _ENDS,
    "-ag --agent -no-ag --no-agent --tools --tools-runtime --mcp-servers-config --mcp-servers-json": _RUNS,
    "--ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy": _RUNS,
    "--log-disable --log-file --log-jsonl --no-log-jsonl --log-colors": _LOG,
    "--log-prefix --no-log-prefix --log-timestamps --no-log-timestamps": _LOG,
    "--metrics --slots --no-slots --ui --webui --no-ui --no-webui": _OURS,
    "--sleep-idle-seconds": "the supervisor decides when a model leaves memory",
    "--kv-unified-per-slot": "give ctx_size, parallel and kv_unified, from which the memory is computed",
    "--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits": f"{_GONE}; use the fields spec_ngram_…",
}

_FILES = "it names files of the machine"
_READS = "it lets requests read files of the machine"
_PRIVATE = "it writes what clients say into files or the log"
_MEMORY = "it changes the engine's memory in a way that no estimate sees"
_CONFIGURATION: Mapping[str, str] = {
    "--grammar-file -jf --json-schema-file -lcs --lookup-cache-static -lcd --lookup-cache-dynamic": _FILES,
    "--control-vector --control-vector-scaled --control-vector-layer-range": _FILES,
    "--media-path --video-ffmpeg-dir": _READS,
    "--log-prompts-dir -v --verbose --log-verbose -lv --verbosity --log-verbosity": _PRIVATE,
    "--override-kv --no-host": _MEMORY,
    "--prio --prio-batch --spec-draft-prio --prio-draft --spec-draft-prio-batch --prio-batch-draft": (
        "it changes the engine's priority against everything else on the machine"
    ),
    "--threads-http": "it starts as many threads as it says, of which a machine has so many for all programs together",
    "--props": "it lets requests change what all others get",
    "--spec-synth-len --spec-synth-rates": "it invents answers, for benchmarks",
}

_ANYBODY = """
-C --cpu-mask -Cr --cpu-range --cpu-strict --poll -Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch
--poll-batch --numa -n --predict --n-predict --keep --perf --no-perf -e --escape --no-escape -dt --defrag-thold
-lzm --lazy-mode -fitt --fit-target -fitc --fit-ctx --check-tensors --offline
--samplers -s --seed --sampler-seq --sampling-seq --ignore-eos --temp --temperature --top-k --top-p --min-p
--top-nsigma --top-n-sigma --xtc-probability --xtc-threshold --typical --typical-p --repeat-last-n --repeat-penalty
--presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n
--dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr
--mirostat-ent -l --logit-bias --grammar -j --json-schema -bs --backend-sampling
--spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd --threads-batch-draft
--spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft
--spec-draft-cpu-strict --cpu-strict-draft --spec-draft-poll --poll-draft
--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft --spec-draft-cpu-strict-batch --cpu-strict-batch-draft
--spec-draft-poll-batch --poll-batch-draft --spec-draft-sampling
--spec-draft-backend-sampling --no-spec-draft-backend-sampling
-cms --checkpoint-min-step --cache-idle-slots --no-cache-idle-slots --cache-prompt --no-cache-prompt --cache-reuse
-r --reverse-prompt -sp --special --warmup --no-warmup --spm-infill -cb --cont-batching -nocb --no-cont-batching
--image-min-tokens --image-max-tokens --mtmd-batch-max-tokens --video-fps --video-timestamp-interval
--tags --embd-normalize -to --timeout --sse-ping-interval
--prefill-assistant --no-prefill-assistant -sps --slot-prompt-similarity --lora-init-without-apply
"""


def rules_with(rows: Iterable[Option]) -> dict[str, Rule]:
    """Return the rules by spelling, where these options have fields."""
    return {
        **{flag: Rule("anybody") for flag in _ANYBODY.split()},
        **{flag: Rule("configuration", why) for names, why in _CONFIGURATION.items() for flag in names.split()},
        **{flag: Rule("never", why) for names, why in _NEVER.items() for flag in names.split()},
        **{flag: Rule("field", row.name, row.client) for row in rows for flag in (*row.on, *row.off)},
    }


RULES: Mapping[str, Rule] = rules_with(options_of(LaunchOptions))
"""By spelling."""

NEWER = Rule("configuration", "this program does not know its effect")


def rule_of(flag: str) -> Rule:
    """Return the rule for a spelling; `--no-X` follows `--X`."""
    return RULES.get(flag) or RULES.get(flag.replace("--no-", "--", 1)) or NEWER
