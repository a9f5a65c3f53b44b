"""Errors about the hub that models come from."""

from __future__ import annotations

from supervisor.errors.base import SupervisorError


class HubError(SupervisorError):
    """The hub answered with something that is not understood, or that no hub would say."""

    code = "hub_error"
    status = 502


class RepositoryNotFound(HubError):
    """The hub has no such repository, revision or file, or it is private and the token does not open it."""

    code = "repository_not_found"
    status = 404


class HubTokenNeeded(HubError):
    """The hub wants a token, or another one."""

    code = "hub_token_needed"
    status = 403


class HubGated(HubError):
    """The repository's licence has to be accepted on its page first."""

    code = "hub_gated"
    status = 403


class HubBusy(HubError):
    """The hub asked to be left alone for a while, again and again, or is out of order."""

    code = "hub_busy"
    status = 503
    transient = True


class HubUnreachable(HubError):
    """The hub does not answer, or the network may not be used, and the files are not in the cache."""

    code = "hub_unreachable"
    status = 503
    transient = True


class DownloadFailed(HubError):
    """A download broke off; what arrived is kept, the next try goes on with the rest."""

    code = "download_failed"
    transient = True


class DiskFull(HubError):
    """There is not enough room on the disk for what has to be downloaded."""

    code = "disk_full"
    status = 507


class VerificationFailed(HubError):
    """A file in the cache is not what the hub says it is."""

    code = "verification_failed"
