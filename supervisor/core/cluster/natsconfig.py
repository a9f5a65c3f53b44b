"""The configuration file of a NATS server: for nodes alone, with JetStream, and nothing else of what it can do.

A node is known by its certificate, of which the list of users has the name. Each may use the subjects that a node
needs: those of the buckets and of what is published, and answers to itself alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from supervisor.core.cluster.identity import SERVER, Peer

LOADS: Final = "supervisor.load"
"""The subject on which nodes publish what they do."""

SHARED: Final = "shared"
"""The key of the configuration that all nodes share."""

KEYS: Final[Mapping[str, str]] = {"config": SHARED}
"""The one key of a bucket that has one."""

_STORED: Final = 256 << 20  # bytes that JetStream may keep, on the disk and in memory


@dataclass(frozen=True)
class NatsConfig:
    """A server.

    Attributes:
        name: of its node.
        host, port: where it is reached.
        folder: where it keeps what is stored.
        authority, chain, key: the files of the cluster's authority, and of the node's certificate and key (PEM).
        users: the nodes that are let in.
        buckets: the names of what they store.
        routes: the other servers' `host:port` for servers; empty: it is the only one. Each has to have a certificate
            that names the host.
        route_port: its own such port.
    """

    name: str
    host: str
    port: int
    folder: str
    authority: str
    chain: str
    key: str
    users: Sequence[Peer]
    buckets: Sequence[str]
    routes: Sequence[str] = ()
    route_port: int = 0

    def text(self) -> str:
        """Return the file's text."""
        lines = [
            f"server_name: {_quoted(self.name)}",
            f"listen: {_quoted(_address(self.host, self.port))}",
            "max_payload: 1MB",
            "max_connections: 1024",
            'ping_interval: "2s"',
            "ping_max: 2",
            'write_deadline: "5s"',
            "logtime: false",
            f"tls {{ {self._tls()} }}",
            "authorization { users: [",
            *(f"  {self._user(one)}" for one in self.users),
            "] }",
            "jetstream {",
            f"  store_dir: {_quoted(self.folder)}",
            f"  max_mem: {_STORED}",
            f"  max_file: {_STORED}",
            "  sync_interval: always",
            "}",
        ]
        if self.routes:
            routes = ", ".join(_quoted(f"tls://{one}") for one in self.routes)
            lines += [
                "cluster {",
                '  name: "supervisor"',
                f"  listen: {_quoted(_address(self.host, self.route_port))}",
                f"  tls {{ {self._tls()} }}",
                f"  authorization {{ user: {_quoted(SERVER)} }}",
                f"  routes: [{routes}]",
                "}",
            ]
        return "\n".join(lines) + "\n"

    def _tls(self) -> str:
        return (
            f"cert_file: {_quoted(self.chain)}, key_file: {_quoted(self.key)}, ca_file: {_quoted(self.authority)}, "
            'verify_and_map: true, min_version: "1.3"'
        )

    def _user(self, peer: Peer) -> str:
        told = [LOADS, *(f"$KV.{one}.{KEYS.get(one, '>')}" for one in self.buckets), *_asked(self.buckets)]
        heard = [LOADS, f"{inbox_of(peer)}.>"]
        publish, subscribe = (", ".join(map(_quoted, subjects)) for subjects in (told, heard))
        return f"{{ user: {_quoted(peer.uri)}, permissions: {{ publish: [{publish}], subscribe: [{subscribe}] }} }}"


def inbox_of(peer: Peer) -> str:
    """Return the beginning of the subjects on which a node gets answers."""
    return f"_INBOX.{peer.serial}"


def _asked(buckets: Sequence[str]) -> list[str]:
    """Return what JetStream is asked for buckets: to make one, to look at it, and to follow it."""
    calls = (
        *("STREAM.CREATE", "STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET"),
        *("CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE"),
    )
    return [
        *(f"$JS.API.{call}.KV_{one}{deeper}" for one in buckets for call in calls for deeper in ("", ".>")),
        *(f"$JS.FC.KV_{one}.>" for one in buckets),
    ]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _quoted(text: str) -> str:
    """Return a text as a string of the file, which has JSON's escapes for quotes and backslashes.

    Raises ValueError for control characters: the file has no way to say them.
    """
    if not text.isprintable():
        raise ValueError(f"{text!r} cannot stand in the configuration of a NATS server")
    return json.dumps(text, ensure_ascii=False)
