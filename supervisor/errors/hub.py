"""Errors about the hub that models come from."""

from __future__ import annotations

from supervisor.errors.base import SupervisorError


class HubError(SupervisorError):
    """The hub's answer is not understood, or breaks a rule."""

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
    """The repository's licence must first be accepted on its page."""

    code = "hub_gated"
    status = 403


class HubBusy(HubError):
    """The hub repeatedly asked to wait, or is out of order."""

    code = "hub_busy"
    status = 503
    transient = True


class HubUnreachable(HubError):
    """The files are not in the cache, and the hub does not answer or the network may not be used."""

    code = "hub_unreachable"
    status = 503
    transient = True


class DownloadFailed(HubError):
    """A download broke off. What arrived is kept, and the next try continues with the rest."""

    code = "download_failed"
    transient = True


class DiskFull(HubError):
    """The disk has not enough room for the download."""

    code = "disk_full"
    status = 507


class VerificationFailed(HubError):
    """A file in the cache is not the one that the hub describes."""

    code = "verification_failed"
