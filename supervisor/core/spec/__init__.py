"""Read from a header everything that decides what llama.cpp will allocate, by the rules of the architecture.

    read_spec(header)              the facts of a model
    lookup(name), ARCHITECTURES    what llama.cpp does for each architecture
    describe(header, spec)         what a person wants to know of a model

An architecture is one row of `architectures`; what a row may say stands in `traits`.
"""

from supervisor.core.spec.architectures import ARCHITECTURES, lookup
from supervisor.core.spec.description import describe, merge_labels, plain_metadata, tensor_bytes, tensor_summary
from supervisor.core.spec.model import ModelSpec, read_spec
from supervisor.core.spec.parts import COMPRESSED_RATIO, ExpertSpec, IndexerSpec, PleSpec, RopeSpec, SsmSpec
from supervisor.core.spec.traits import (
    Architecture,
    DraftRule,
    Graph,
    IndexerRule,
    KvRule,
    Layout,
    RecurrentFamily,
    SecondBranch,
)

__all__ = [
    "ARCHITECTURES",
    "COMPRESSED_RATIO",
    "Architecture",
    "DraftRule",
    "ExpertSpec",
    "Graph",
    "IndexerRule",
    "IndexerSpec",
    "KvRule",
    "Layout",
    "ModelSpec",
    "PleSpec",
    "RecurrentFamily",
    "RopeSpec",
    "SecondBranch",
    "SsmSpec",
    "describe",
    "lookup",
    "merge_labels",
    "plain_metadata",
    "read_spec",
    "tensor_bytes",
    "tensor_summary",
]
