"""Find the models in a repository's file list (variants, shards, projectors, drafts), and choose which one to take."""

from supervisor.core.repository.choice import Assessment, Preference, best, find, listing, projector_for
from supervisor.core.repository.entries import RepoFile, Variant
from supervisor.core.repository.mlx import is_mlx, mlx_variant
from supervisor.core.repository.names import Kind, kind_of, quant_of
from supervisor.core.repository.quality import ORDER, rank
from supervisor.core.repository.reference import HubReference, parse_reference
from supervisor.core.repository.variants import Catalog, catalog_of

__all__ = [
    "ORDER",
    "Assessment",
    "Catalog",
    "HubReference",
    "Kind",
    "Preference",
    "RepoFile",
    "Variant",
    "best",
    "catalog_of",
    "find",
    "is_mlx",
    "kind_of",
    "listing",
    "mlx_variant",
    "parse_reference",
    "projector_for",
    "quant_of",
    "rank",
]
