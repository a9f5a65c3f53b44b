"""Errors about the daemon."""

from __future__ import annotations

from supervisor.errors.base import SupervisorError


class DaemonError(SupervisorError):
    """Something about the daemon itself."""

    code = "daemon_error"


class DaemonUnreachable(DaemonError):
    """No daemon answers."""

    code = "daemon_unreachable"


class DaemonUnproven(DaemonError):
    """The program at the daemon's address cannot prove that it is the daemon."""

    code = "daemon_unproven"


class DaemonVersionMismatch(DaemonError):
    """The running daemon and this command have different versions."""

    code = "version_mismatch"


class DaemonAlreadyRunning(DaemonError):
    """A daemon with this state folder is already running."""

    code = "daemon_already_running"


class AddressInUse(DaemonError):
    """The listen address is taken or cannot be bound."""

    code = "address_in_use"


class PassedSocketUnusable(DaemonError):
    """The service manager passed a socket that the daemon cannot serve."""

    code = "passed_socket_unusable"


class InsecureBind(DaemonError):
    """The address can be reached from elsewhere, and there is no key."""

    code = "insecure_bind"


class TakeoverFailed(DaemonError):
    """Another image of the daemon could not take over; this one goes on."""

    code = "takeover_failed"
    status = 409


class TakeoverUnsupported(DaemonError):
    """No other image of the daemon can take over on this platform."""

    code = "takeover_unsupported"
    status = 501


class Overloaded(DaemonError):
    """The daemon has no room for another one now.

    Args:
        message: as in SupervisorError.
        retry_after: seconds after which it is worth another try.
    """

    code = "overloaded"
    status = 503
    transient = True

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TakingOver(Overloaded):
    """A new image of the daemon is taking over, and this one changes nothing any more."""

    code = "taking_over"


class QueueFull(Overloaded):
    """Too many requests wait."""

    code = "queue_full"
    status = 429


class BodiesFull(Overloaded):
    """The bodies of requests that wait or run use all the memory that is allowed for them."""

    code = "bodies_full"


class TooManyConnections(Overloaded):
    """The server has as many connections as it can serve."""

    code = "too_many_connections"


class TooManyReaders(Overloaded):
    """As many clients follow events or logs as are allowed."""

    code = "too_many_readers"


class TooManyDownloads(Overloaded):
    """As many downloads without a waiting client are running as are allowed."""

    code = "too_many_downloads"


class NotReady(Overloaded):
    """Models that are loaded at the start are not ready yet."""

    code = "not_ready"


class RequestCancelled(DaemonError):
    """Somebody ended the request by its id."""

    code = "request_cancelled"
    status = 499


class ShuttingDown(DaemonError):
    """The daemon is stopping and takes no new work."""

    code = "shutting_down"
    status = 503
    transient = True


class StoreUnusable(DaemonError):
    """The database in the state folder cannot be opened."""

    code = "store_unusable"


class StoreTooNew(StoreUnusable):
    """The database was made by a later version of this program."""

    code = "store_too_new"


class KeysUnusable(DaemonError):
    """The file of API keys in the state folder cannot be read or written."""

    code = "keys_unusable"


class TracingUnavailable(DaemonError):
    """Traces are configured, and the packages that make them are not installed."""

    code = "tracing_unavailable"


class RemoteError(DaemonError):
    """An error that the daemon reported, as the command line sees it.

    Args:
        message: the daemon's message.
        code: the daemon's code, which becomes this error's own.
        param: as in SupervisorError.
        log_lines: as in SupervisorError.
        status: of the answer; None where it was told in the middle of one.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        param: str | None = None,
        log_lines: tuple[str, ...] = (),
        status: int | None = None,
    ) -> None:
        super().__init__(message, param=param, log_lines=log_lines)
        self.code = code
        self.status = self.status if status is None else status


class WorkerError(DaemonError):
    """Something about the workers: other hosts whose devices count as ours."""

    code = "worker_error"
    status = 409


class WorkersOff(WorkerError):
    """The daemon takes no workers."""

    code = "workers_off"


class WorkersUnavailable(WorkerError):
    """The daemon's gateway for workers does not run."""

    code = "workers_unavailable"
    status = 503


class WorkerNotFound(WorkerError):
    """No worker of this name has joined."""

    code = "worker_not_found"
    status = 404


class WorkerRefused(WorkerError):
    """A daemon does not let a worker in, or is not the one that invited it."""

    code = "worker_refused"

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class WorkerNotJoined(WorkerError):
    """This host has joined no daemon."""

    code = "worker_not_joined"


class WorkerUnusable(WorkerError):
    """This host cannot be a worker as it is."""

    code = "worker_unusable"
