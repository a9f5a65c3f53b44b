"""Known models with fewer layers, experts and tokens: every width is the published one, so that buffers have the
proportions of the real thing, in a file that a test can load."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.evidence import known_models
from tests.evidence.architectures import Metadata
from tests.evidence.make import Tensor, write_model
from tests.evidence.subjects import KNOWN, metadata_of, recorded_tensors, unpack_tensors

VOCABULARY = 2048


@dataclass(frozen=True)
class Shortened:
    """The first `layers` of a known model. `experts`: as many as there are left; as many as are used at least."""

    name: str
    layers: int
    experts: int = 0

    @property
    def metadata(self) -> Metadata:
        known = metadata_of(self.name)
        architecture = str(known["general.architecture"])
        whole = known[f"{architecture}.block_count"]
        found: Metadata = {
            key: value[: self.layers] if isinstance(value, list) and len(value) == whole else value
            for key, value in known.items()
        }
        found |= {f"{architecture}.block_count": self.layers, f"{architecture}.vocab_size": VOCABULARY}
        if self.experts:
            found[f"{architecture}.expert_count"] = self.experts
        return found | {
            "tokenizer.ggml.model": "test",
            "tokenizer.ggml.tokens": [f"tok_{token}" for token in range(VOCABULARY)],
            "tokenizer.ggml.scores": [0.0] * VOCABULARY,
        }

    def tensors(self) -> Iterator[Tensor]:
        """In the types of the known model's file."""
        known = metadata_of(self.name)
        architecture = known["general.architecture"]
        sizes = {known[f"{architecture}.vocab_size"]: VOCABULARY}
        experts = {known.get(f"{architecture}.expert_count"): self.experts}
        for tensor in unpack_tensors(recorded_tensors(KNOWN)[self.name]):
            parts = tensor.name.split(".")
            if parts[0] == "blk" and int(parts[1]) >= self.layers:
                continue
            by_expert = tensor.name.endswith((
                "_exps.weight",
                "_exps.bias",
                "gate_inp.weight",
                "gate_inp.bias",
                "probs_b.bias",
            ))
            swaps = (experts if self.experts and by_expert else {}) if parts[0] == "blk" else sizes
            yield replace(tensor, shape=(*tensor.shape[:-1], swaps.get(tensor.shape[-1], tensor.shape[-1])))

    def write(self, folder: Path) -> Path:
        path = folder / f"{self.name}-{self.layers}-layers.gguf"
        write_model(path, self.metadata, list(known_models.BY_NAME[self.name].tensors(self.tensors())))
        return path
