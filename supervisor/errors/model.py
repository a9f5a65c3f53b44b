"""Errors about a model: its name, its files, its load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from supervisor.errors.base import SupervisorError


class ModelError(SupervisorError):
    """Something about a model."""

    code = "model_error"
    status = 500


class ModelNotFound(ModelError):
    """There is no such model configured, built in or on disk."""

    code = "model_not_found"
    status = 404


class ModelIdTaken(ModelError):
    """The id already names another model."""

    code = "model_id_taken"
    status = 409


class ModelFileError(ModelError):
    """The file exists but cannot be a model."""

    code = "model_file_invalid"
    status = 422


class GgufError(ModelFileError):
    """A GGUF header is damaged, truncated, hostile or of an unknown version.

    Args:
        message: the reason.
        offset: byte offset in the file where reading stopped.
    """

    code = "gguf_invalid"

    def __init__(self, message: str, *, offset: int = 0) -> None:
        super().__init__(f"{message} (at byte {offset})")
        self.reason = message
        self.offset = offset

    @classmethod
    def told(cls, message: str, log_lines: tuple[str, ...] = ()) -> Self:
        """Return the same error again; the message already has the place in the file."""
        error = cls(message)
        error.message, error.log_lines = message, log_lines
        error.args = (message,)
        return error


class SafetensorsError(ModelFileError):
    """The header of a safetensors file is damaged, cut off or too large."""

    code = "safetensors_invalid"


class ModelConfigError(ModelFileError):
    """The `config.json` beside a model's safetensors files is missing, damaged, or lacks what decides its memory."""

    code = "model_config_invalid"


class ShardMissing(ModelFileError):
    """A part of a split model is missing."""

    code = "shard_missing"


class ProjectorAlone(ModelFileError):
    """The file is a projector, which is loaded with a model, not by itself."""

    code = "projector"


class VocabularyOnly(ModelFileError):
    """The file holds a vocabulary and no weights."""

    code = "vocabulary_only"


class DraftOnly(ModelFileError):
    """The file is a model that can only draft for another one."""

    code = "draft_only"


class ContextUnknown(ModelFileError):
    """The file names no native context."""

    code = "no_context"


_OF_FILES: Mapping[str, type[ModelFileError]] = {
    kind.code: kind for kind in (ProjectorAlone, VocabularyOnly, DraftOnly, ContextUnknown)
}


def file_refused(code: str, message: str) -> ModelFileError | None:
    """Return the error if llama-server refuses the file whatever the options; None if the code is an option's."""
    kind = _OF_FILES.get(code)
    return None if kind is None else kind(message)


class VariantNotFound(ModelError):
    """The repository has no such quantisation or file; the message lists what there is."""

    code = "variant_not_found"
    status = 404


class VariantAmbiguous(ModelError):
    """Several files of the repository match the name."""

    code = "variant_ambiguous"
    status = 409


class ModelInUse(ModelError):
    """The model's files cannot be removed while an engine uses them."""

    code = "model_in_use"
    status = 409


class EstimateRefused(ModelError):
    """llama-server would refuse these options for this model; the message is its reason.

    Args:
        code: the refusal's own, in place of the class's.
        message: why, and what to do instead.
    """

    code = "estimate_refused"
    status = 422

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ModelDoesNotFit(ModelError):
    """The machine has no room for the model, even if all others leave; the message has the numbers."""

    code = "does_not_fit"
    status = 507


class MemoryUnknown(ModelError):
    """Nobody has said what the engine of this model will hold, and it was never measured."""

    code = "memory_unknown"
    status = 422


class ModelLoadFailed(ModelError):
    """No engine could be started for the model; if the cause is known, `code` is the cause's own."""

    code = "model_load_failed"
    status = 503
    transient = True

    def __init__(
        self, message: str, *, code: str | None = None, param: str | None = None, log_lines: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, param=param, log_lines=log_lines)
        self.code = code or self.code


class ModelNotLoaded(ModelLoadFailed):
    """This call does not load a model, and the model is not loaded."""

    code = "model_not_loaded"
    transient = False


class CrashLoop(ModelLoadFailed):
    """The model's engine failed too often in a row. It is started again when somebody asks with `load`."""

    code = "crash_loop"
    transient = False


class LoadCancelled(ModelLoadFailed):
    """Somebody unloaded the model while it was loading."""

    code = "load_cancelled"
