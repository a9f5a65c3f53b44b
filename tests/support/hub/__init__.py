"""A hub on this machine that the real client accepts, with faults on request."""

from tests.support.hub.server import Fault, LocalHub, Seen, local_hub

__all__ = ["Fault", "LocalHub", "Seen", "local_hub"]
