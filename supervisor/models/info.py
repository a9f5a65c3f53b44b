"""Read what a plan needs of a model: its header, its projector's, its draft's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from supervisor.core.gguf import GgufHeader
from supervisor.core.launch import (
    LaunchOptions,
    ModelFacts,
    estimate_options,
    explicit_of,
    facts_of,
    projector_of,
)
from supervisor.core.learn.identity import model_identity
from supervisor.core.plan import PlanRequest
from supervisor.core.spec import ModelSpec, read_spec, tensor_bytes
from supervisor.files.header_cache import HeaderCache
from supervisor.files.model_file import ModelFile, open_model
from supervisor.files.projector import projector_beside


@dataclass(frozen=True)
class ModelInfo:
    """A model as a plan, a launch and the store need it.

    Attributes:
        identity: the same for every copy of the model.
        projector_bytes: weights of the projector that will be loaded.
        draft: the second model that drafts.
        inputs: kinds of input, with those of the projector.
        siblings: other quantisations in its repository, with their sizes.
    """

    model: ModelFile
    spec: ModelSpec
    facts: ModelFacts
    identity: str
    projector_bytes: int = 0
    draft: ModelSpec | None = None
    siblings: tuple[tuple[str, int], ...] = ()
    inputs: tuple[str, ...] = ()

    def request(self, name: str, options: LaunchOptions) -> PlanRequest:
        """Return the request to the planner. Raise InvalidRequest for options that cannot be planned."""
        return PlanRequest(
            name,
            self.spec,
            estimate_options(options, self.facts, mmproj=self.projector_bytes or None),
            explicit_of(options),
            self.projector_bytes,
            self.draft,
            siblings=self.siblings,
        )


def read_info(path: Path, options: LaunchOptions, cache: HeaderCache | None = None) -> ModelInfo:
    """Open the model's file, and those that its options name. Raise ModelFileError and its subclasses."""
    model = open_model(path, cache=cache)
    beside = projector_beside(model) if options.mmproj_auto and options.mmproj is None else None
    facts = facts_of(model.header, None if beside is None else str(beside))
    projector = projector_of(options, facts)
    header = open_model(Path(projector), cache=cache).header if projector else None
    return _info(model, facts, header, _draft(options, cache))


def remote_info(
    model: ModelFile, projector: GgufHeader | None, options: LaunchOptions, cache: HeaderCache | None = None
) -> ModelInfo:
    """Return the info of a model that is not on disk: `model` has its header, its paths are only names."""
    return _info(model, facts_of(model.header), projector, _draft(options, cache))


def _info(model: ModelFile, facts: ModelFacts, projector: GgufHeader | None, draft: ModelSpec | None) -> ModelInfo:
    spec = read_spec(model.header)
    return ModelInfo(
        model,
        spec,
        facts,
        model_identity(model.header),
        tensor_bytes(projector.tensors) if projector else 0,
        draft,
        inputs=(*spec.modalities, *(read_spec(projector).modalities if projector else ())),
    )


def _draft(options: LaunchOptions, cache: HeaderCache | None) -> ModelSpec | None:
    if options.spec_draft_model is None:
        return None
    return read_spec(open_model(Path(options.spec_draft_model), cache=cache).header)
