"""Every error this program raises on purpose.

SupervisorError                     internal_error
├─ ConfigError                      config_invalid
├─ UsageError                       usage
├─ PackageOverwritten               package_overwritten
├─ ProfileInvalid                   profile_invalid
├─ ModelError
│  ├─ ModelNotFound                 model_not_found
│  ├─ ModelIdTaken                  model_id_taken
│  ├─ ModelFileError                model_file_invalid
│  │  ├─ GgufError                  gguf_invalid
│  │  └─ ShardMissing               shard_missing
│  ├─ EstimateRefused               estimate_refused
│  ├─ ModelDoesNotFit               does_not_fit
│  └─ ModelLoadFailed               model_load_failed
│     ├─ CrashLoop                  crash_loop
│     └─ LoadCancelled              load_cancelled
├─ EngineError
│  ├─ EngineNotFound                engine_not_found
│  ├─ EngineUnusable                engine_unusable
│  ├─ EngineInstallFailed           engine_install_failed
│  │  ├─ BuildToolMissing           build_tool_missing
│  │  ├─ BuildFailed                build_failed
│  │  └─ BuildLocked                build_locked
│  ├─ EngineStartFailed             engine_start_failed
│  │  └─ EngineStalled              engine_stalled
│  ├─ EngineLost                    engine_lost
│  ├─ EngineStreamInvalid           engine_stream_invalid
│  └─ OptionNotSupported            option_not_supported
├─ RequestError
│  ├─ InvalidRequest                invalid_request
│  │  └─ PayloadTooLarge            payload_too_large
│  ├─ Unauthorized                  unauthorized
│  ├─ HostNotAllowed                host_not_allowed
│  ├─ OriginNotAllowed              origin_not_allowed
│  └─ RouteNotFound                 route_not_found
└─ DaemonError
   ├─ DaemonUnreachable             daemon_unreachable
   ├─ DaemonVersionMismatch         version_mismatch
   ├─ DaemonAlreadyRunning          daemon_already_running
   ├─ AddressInUse                  address_in_use
   ├─ InsecureBind                  insecure_bind
   ├─ QueueFull                     queue_full
   ├─ ShuttingDown                  shutting_down
   ├─ StoreUnusable                 store_unusable
   │  └─ StoreTooNew                store_too_new
   └─ RemoteError                   (the code the daemon gave)

`code` is a promise to scripts; a message says what is wrong and what to do. HTTP statuses live in
`api/errors.py`, exit codes in `cli/exits.py`: an error does not know who asks.
"""

from __future__ import annotations


class SupervisorError(Exception):
    """Base of all; raised bare only for what should be impossible.

    Args:
        message: one or two sentences: what is wrong, what to do.
        param: the request field, option or setting at fault.
        log_lines: the telling lines of a child's output, oldest first.
    """

    code = "internal_error"

    def __init__(self, message: str, *, param: str | None = None, log_lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.log_lines = log_lines


class ConfigError(SupervisorError):
    """The configuration file or a setting of the environment is wrong."""

    code = "config_invalid"


class UsageError(SupervisorError):
    """The command line asks for something that makes no sense."""

    code = "usage"


class PackageOverwritten(SupervisorError):
    """Another distribution that also calls its package `supervisor` was installed over this one."""

    code = "package_overwritten"


class ProfileInvalid(SupervisorError):
    """The description of a machine's devices is wrong."""

    code = "profile_invalid"


class ModelError(SupervisorError):
    """Something about a model."""

    code = "model_error"


class ModelNotFound(ModelError):
    """No such model is configured, built in or on disk."""

    code = "model_not_found"


class ModelIdTaken(ModelError):
    """The id already names another model."""

    code = "model_id_taken"


class ModelFileError(ModelError):
    """The file is there but cannot be a model."""

    code = "model_file_invalid"


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


class ShardMissing(ModelFileError):
    """A part of a split model is not there."""

    code = "shard_missing"


class EstimateRefused(ModelError):
    """llama-server would refuse these options for this model; the message is its reason.

    Args:
        code: the refusal's own, in place of the class's.
        message: why, and what to do instead.
    """

    code = "estimate_refused"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ModelDoesNotFit(ModelError):
    """The machine has no room for the model, whatever leaves; the message has the numbers."""

    code = "does_not_fit"


class ModelLoadFailed(ModelError):
    """An engine could not be brought up for the model."""

    code = "model_load_failed"


class CrashLoop(ModelLoadFailed):
    """The model's engine failed too often in a row; it is started again when somebody asks with `load`."""

    code = "crash_loop"


class LoadCancelled(ModelLoadFailed):
    """Somebody unloaded the model while it was loading."""

    code = "load_cancelled"


class EngineError(SupervisorError):
    """Something about `llama-server` itself."""

    code = "engine_error"


class EngineNotFound(EngineError):
    """No usable `llama-server` on this machine."""

    code = "engine_not_found"


class EngineUnusable(EngineError):
    """A `llama-server` exists but does not run here."""

    code = "engine_unusable"


class EngineInstallFailed(EngineError):
    """No route to an engine worked."""

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
    """The engine exited before it was ready."""

    code = "engine_start_failed"


class EngineStalled(EngineStartFailed):
    """The engine showed no progress for longer than the stall limit."""

    code = "engine_stalled"


class EngineLost(EngineError):
    """The engine died or closed the connection during a request."""

    code = "engine_lost"


class EngineStreamInvalid(EngineError):
    """The engine's event stream breaks its own format."""

    code = "engine_stream_invalid"


class OptionNotSupported(EngineError):
    """The running engine build lacks an option that was asked for."""

    code = "option_not_supported"


class RequestError(SupervisorError):
    """The client's fault."""

    code = "request_error"


class InvalidRequest(RequestError):
    """The request is malformed."""

    code = "invalid_request"


class PayloadTooLarge(InvalidRequest):
    """The request body is over the limit."""

    code = "payload_too_large"


class Unauthorized(RequestError):
    """The API key is missing or wrong."""

    code = "unauthorized"


class HostNotAllowed(RequestError):
    """The Host header names a host this daemon is not (DNS rebinding)."""

    code = "host_not_allowed"


class OriginNotAllowed(RequestError):
    """A web page of another origin tries to drive the daemon."""

    code = "origin_not_allowed"


class RouteNotFound(RequestError):
    """No such path or method."""

    code = "route_not_found"


class DaemonError(SupervisorError):
    """Something about the daemon itself."""

    code = "daemon_error"


class DaemonUnreachable(DaemonError):
    """No daemon answers."""

    code = "daemon_unreachable"


class DaemonVersionMismatch(DaemonError):
    """The running daemon is of another version than this command."""

    code = "version_mismatch"


class DaemonAlreadyRunning(DaemonError):
    """A daemon with this state folder is running already."""

    code = "daemon_already_running"


class AddressInUse(DaemonError):
    """The listen address is taken or cannot be bound."""

    code = "address_in_use"


class InsecureBind(DaemonError):
    """A non-loopback address without a key."""

    code = "insecure_bind"


class QueueFull(DaemonError):
    """Too many requests wait.

    Args:
        message: as in SupervisorError.
        retry_after: seconds after which it is worth another try.
    """

    code = "queue_full"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ShuttingDown(DaemonError):
    """The daemon is stopping and takes no new work."""

    code = "shutting_down"


class StoreUnusable(DaemonError):
    """The database in the state folder cannot be opened."""

    code = "store_unusable"


class StoreTooNew(StoreUnusable):
    """The database was made by a later version of this program."""

    code = "store_too_new"


class RemoteError(DaemonError):
    """An error the daemon reported, as the command line sees it.

    Args:
        message: the daemon's message.
        code: the daemon's code, which becomes this error's own.
        param: as in SupervisorError.
        log_lines: as in SupervisorError.
    """

    def __init__(self, message: str, *, code: str, param: str | None = None, log_lines: tuple[str, ...] = ()) -> None:
        super().__init__(message, param=param, log_lines=log_lines)
        self.code = code
