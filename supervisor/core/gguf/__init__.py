"""GGUF files: the facts of a header, the kind of a file from its beginning, the tensor types of ggml.

    read_header(stream, size)    an open stream → what its header says
    bounded(name, headers)       of the parts of a split model, as far as they may go
    combine_shards(headers)      the parts of a split model → one header
    kind_of_file(head)           the first bytes of a file → a model, or what only goes with one
    shard_of(name)               the name of a file of a split model → which part it is

Whatever the bytes are, reading them is bounded; what is wrong with them is a `GgufError` with its place.
"""

from supervisor.core.gguf.ggml import CACHE_TYPES, TENSOR_TYPES, TensorType, row_bytes, tensor_type, type_name
from supervisor.core.gguf.header import ArraySummary, GgufHeader, GgufScalar, GgufValue, TensorInfo
from supervisor.core.gguf.kind import PEEK, FileKind, kind_of_file
from supervisor.core.gguf.reader import read_header
from supervisor.core.gguf.shard_names import Shard, shard_of
from supervisor.core.gguf.shards import bounded, combine_shards

__all__ = [
    "CACHE_TYPES",
    "PEEK",
    "TENSOR_TYPES",
    "ArraySummary",
    "FileKind",
    "GgufHeader",
    "GgufScalar",
    "GgufValue",
    "Shard",
    "TensorInfo",
    "TensorType",
    "bounded",
    "combine_shards",
    "kind_of_file",
    "read_header",
    "row_bytes",
    "shard_of",
    "tensor_type",
    "type_name",
]
