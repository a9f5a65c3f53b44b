"""Errors about `llama-server`: getting it, starting it, talking to it."""

from __future__ import annotations

from supervisor.errors.base import SupervisorError


class EngineError(SupervisorError):
    """Something about `llama-server` itself."""

    code = "engine_error"
    status = 503


class EngineNotFound(EngineError):
    """There is no usable `llama-server` on this machine."""

    code = "engine_not_found"


class EngineUnusable(EngineError):
    """A `llama-server` exists but does not run here."""

    code = "engine_unusable"


class EngineInstallFailed(EngineError):
    """No way to install an engine worked."""

    code = "engine_install_failed"


class BuildToolMissing(EngineInstallFailed):
    """A compiler or cmake is missing; the message says what to install."""

    code = "build_tool_missing"


class BuildFailed(EngineInstallFailed):
    """The source build failed; the message names the log."""

    code = "build_failed"


class BuildLocked(EngineInstallFailed):
    """Another process is building or installing an engine."""

    code = "build_locked"


class EngineStartFailed(EngineError):
    """The engine exited before it was ready.

    Attributes:
        code: the cause's own (core/engine_output/failures.py) where that is known.
        device, lacking: what ran out of memory, and the bytes that could not be had; None: not known.
    """

    code = "engine_start_failed"
    transient = True

    def __init__(
        self,
        message: str,
        *,
        log_lines: tuple[str, ...] = (),
        code: str | None = None,
        device: str | None = None,
        lacking: int | None = None,
    ) -> None:
        super().__init__(message, log_lines=log_lines)
        self.code = code or self.code
        self.device, self.lacking = device, lacking


class EngineStalled(EngineStartFailed):
    """The engine showed no progress for longer than the stall limit."""

    code = "engine_stalled"


class EngineLost(EngineError):
    """The engine died or closed the connection during a request."""

    code = "engine_lost"
    status = 502
    transient = True


class EngineHung(EngineLost):
    """The engine was alive and did not answer any more; it was ended."""

    code = "engine_hung"


class EngineStreamInvalid(EngineError):
    """The engine's event stream breaks its own format."""

    code = "engine_stream_invalid"
    status = 502
    transient = True


class NotSupportedByEngine(EngineError):
    """The engine of this model has no answer to requests of this kind; the message says which paths it answers."""

    code = "not_supported_by_engine"
    status = 501


class OptionNotSupported(EngineError):
    """The engine's build lacks a requested option."""

    code = "option_not_supported"
    status = 400
