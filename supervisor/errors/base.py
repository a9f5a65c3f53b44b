"""The base of all errors, and those about the configuration and the installation."""

from __future__ import annotations

from typing import Self


class SupervisorError(Exception):
    """The base of all; raised by itself only for what should be impossible.

    Args:
        message: one or two sentences: what is wrong, what to do.
        param: the request field, option or setting at fault.
        log_lines: the telling lines of a child's output, oldest first.

    Attributes:
        code: stable, a promise to scripts; a class without one of its own has that of the class above.
        status: of the HTTP answer, inherited likewise.
        transient: the same request may succeed a little later, inherited likewise.
    """

    code = "internal_error"
    status = 500
    transient = False

    def __init__(self, message: str, *, param: str | None = None, log_lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.log_lines = log_lines

    @classmethod
    def told(cls, message: str, log_lines: tuple[str, ...] = ()) -> Self:
        """Return the same error again, made of its stored message and lines."""
        return cls(message, log_lines=log_lines)


class ConfigError(SupervisorError):
    """The configuration file or a setting of the environment is wrong.

    Attributes:
        faults: `config.faults.ConfigFault`, one for everything that is wrong.
    """

    code = "config_invalid"
    status = 422

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        log_lines: tuple[str, ...] = (),
        faults: tuple[object, ...] = (),
    ) -> None:
        super().__init__(message, param=param, log_lines=log_lines)
        self.faults = faults


class UsageError(SupervisorError):
    """The command line asks for something that makes no sense."""

    code = "usage"


class PackageOverwritten(SupervisorError):
    """Another distribution that also calls its package `supervisor` was installed over this one."""

    code = "package_overwritten"


class ExtraMissing(SupervisorError):
    """The command needs packages that are installed only on demand; the message says how."""

    code = "extra_missing"


class SystemRefused(SupervisorError):
    """The program cannot write a file that it needs: no permission, a read-only system, or a full disk."""

    code = "system_refused"


class FolderRefused(SystemRefused, PermissionError):
    """A folder belongs to somebody else, others can write to it, or it holds what is not the program's."""

    code = "folder_refused"


class ProfileInvalid(SupervisorError):
    """The description of a machine's devices is wrong."""

    code = "profile_invalid"
    status = 422
