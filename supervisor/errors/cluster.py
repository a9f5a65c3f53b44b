"""Errors of a cluster: many daemons as one."""

from __future__ import annotations

from supervisor.errors.daemon import DaemonError, Overloaded


class ClusterError(DaemonError):
    """Something about the cluster: the daemons that answer as one."""

    code = "cluster_error"
    status = 409


class ClusterOff(ClusterError):
    """This host is in no cluster."""

    code = "cluster_off"


class ClusterJoined(ClusterError):
    """This host is in a cluster already."""

    code = "cluster_joined"


class ClusterRefused(ClusterError):
    """A node does not let this host in, or is not the one that invited it."""

    code = "cluster_refused"

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class ClusterUnavailable(Overloaded):
    """The cluster cannot decide anything now: too few of its servers can be reached."""

    code = "cluster_unavailable"


class NodeNotFound(ClusterError):
    """The cluster has no node of this name."""

    code = "node_not_found"
    status = 404


class NodeLost(ClusterError):
    """The node that was answering has ended, or cannot be reached any more."""

    code = "node_lost"
    status = 502
    transient = True


class ModelMoved(ClusterError):
    """Another node has the right to load the model."""

    code = "model_moved"


class NodeUnknown(ClusterError):
    """The host that asks is no node of the cluster, or is none any more."""

    code = "node_unknown"
    status = 403
    transient = True


class FileNotHere(ClusterError):
    """Another node has asked for a file that this one has not got, or does not lend."""

    code = "file_not_here"
    status = 404


class RangeNotSatisfiable(ClusterError):
    """Another node has asked for bytes behind the end of a file. `size`: bytes that it has."""

    code = "range_not_satisfiable"
    status = 416

    def __init__(self, message: str, size: int = 0) -> None:
        super().__init__(message)
        self.size = size


class LendingFull(Overloaded):
    """As many files are being sent to other nodes as may be at once."""

    code = "lending_full"


class VersionChanged(ClusterError):
    """The cluster's configuration has become another than the one that the change was made for."""

    code = "cluster_config_changed"


class VersionNotFound(ClusterError):
    """The cluster's configuration has no version of this number, or it is not kept any more."""

    code = "cluster_config_not_found"
    status = 404


class NatsServerMissing(ClusterError):
    """There is no nats-server, or one that is too old."""

    code = "nats_server_missing"


class NatsServerFailed(ClusterError):
    """The node's nats-server does not start."""

    code = "nats_server_failed"
    status = 503
