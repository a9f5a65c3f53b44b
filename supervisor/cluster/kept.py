"""What a node keeps of its cluster: in its state folder, for its owner alone. The key never leaves the host."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from supervisor.config.shared import Shared, shared_of
from supervisor.core.cluster.identity import SERVER, Peer
from supervisor.core.cluster.messages import MOST_CONFIG_BYTES, Config, Host, NodeName, Port, Serial, bytes_of, read
from supervisor.system.atomic import atomic_write
from supervisor.system.owned import own_folder, read_own

_FILE: Final = "cluster.json"
_CONFIG: Final = "config.json"
_MOST: Final = 1 << 16
_VERSION: Final = 2


class Server(msgspec.Struct, frozen=True):
    """Address of a NATS server."""

    host: Host
    port: Port

    @property
    def text(self) -> str:
        """Host and port in one."""
        return f"{self.host}:{self.port}"


class _Kept(msgspec.Struct, frozen=True):
    version: int
    name: NodeName
    serial: Serial
    host: Host
    port: Port
    servers: Annotated[tuple[Server, ...], msgspec.Meta(min_length=1, max_length=9)]
    serves: Server | None = None


@dataclass(frozen=True)
class Membership:
    """A node's part in its cluster.

    Attributes:
        folder: where all of it lies.
        serial: of its certificate.
        host, port: where other nodes reach it.
        servers: the NATS servers of the cluster.
        serves: address of the one that this node runs; None: it runs none.
    """

    folder: Path
    name: str
    serial: str
    host: str
    port: int
    servers: tuple[Server, ...]
    serves: Server | None = None

    @property
    def own(self) -> Peer:
        """The node as its certificate says it."""
        return Peer(self.name, self.serial)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port for other nodes."""
        return self.host, self.port

    @property
    def authority(self) -> Path:
        """File of the authority's certificate (PEM)."""
        return self.folder / "ca.pem"

    @property
    def chain(self) -> Path:
        """File of the node's certificate (PEM)."""
        return self.folder / "node.pem"

    @property
    def key(self) -> Path:
        """File of the node's key (PEM)."""
        return self.folder / "node.key"

    @property
    def invites(self) -> bool:
        """True if this node has the authority's key, and so can let others in."""
        return (self.folder / "authority.key").exists()

    def dialling(self) -> ssl.SSLContext:
        """Return how other nodes are dialled. Raises OSError where files are missing or wrong.

        The authority signs for nodes alone. Which node has answered, and whether it is one still, is for who dials.
        """
        return dialling(self.authority, self.chain, self.key)

    def storing(self) -> ssl.SSLContext:
        """Return how the NATS servers are dialled, which have certificates as such. Raises OSError as `dialling`."""
        context = self.dialling()
        context.sslobject_class = _OfServer
        return context

    def answering(self) -> ssl.SSLContext:
        """Return how connections of other nodes are taken: a stranger may have none, and may ask to join.

        Raises OSError as `dialling`.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(self.authority)
        context.load_cert_chain(self.chain, self.key)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


def peer_of(certificate: Mapping[str, Any] | None) -> Peer | None:
    """Return the node that has a certificate, as `ssl` gives it; None where there is none, or it names no node."""
    found = certificate or {}
    parts = found.get("subject", ())
    name = next((str(value) for one in parts for key, value in one if key == "commonName"), None)
    return None if name is None else Peer(name, str(found.get("serialNumber", "")).lower().lstrip("0"))


class _OfServer(ssl.SSLObject):
    """A connection to a NATS server: a certificate that is not of one ends it before anything is said."""

    def do_handshake(self) -> None:
        super().do_handshake()
        if ("URI", SERVER) not in (self.getpeercert() or {}).get("subjectAltName", ()):
            raise ssl.SSLCertVerificationError("it is no NATS server of the cluster")


def dialling(authority: Path, chain: Path, key: Path) -> ssl.SSLContext:
    """Return how other nodes are dialled with these files. Raises OSError where they are missing or wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(authority)
    context.load_cert_chain(chain, key)
    return context


def membership(folder: Path) -> Membership | None:
    """Return what is kept; None: this host is in no cluster. Raises OSError, and ValueError for nonsense."""
    try:
        kept = msgspec.json.decode(read_own(folder / _FILE, _MOST), type=_Kept)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if kept.version != _VERSION:
        raise ValueError(f"{folder / _FILE} is of version {kept.version}, and {_VERSION} is read here")
    return Membership(folder, kept.name, kept.serial, kept.host, kept.port, kept.servers, kept.serves)


def keep(found: Membership, authority: str, certificate: str, key: bytes) -> None:
    """Keep a membership with its certificates and key (PEM). Raises OSError."""
    own_folder(found.folder)
    atomic_write(found.key, key)
    atomic_write(found.chain, certificate.encode())
    atomic_write(found.authority, authority.encode())
    kept = _Kept(_VERSION, found.name, found.serial, found.host, found.port, found.servers, found.serves)
    atomic_write(found.folder / _FILE, msgspec.json.encode(kept), durable=True)


def keep_config(folder: Path, config: Config) -> None:
    """Keep the cluster's configuration that is in force here, for a start without the store. Raises OSError."""
    atomic_write(folder / _CONFIG, bytes_of(config), durable=True)


def kept_config(folder: Path) -> Shared | None:
    """Return what was last in force here; None: nothing was.

    Raises OSError, ValueError for nonsense, and ConfigError for what this program does not take.
    """
    if not (folder / _FILE).exists():
        return None
    try:
        return shared_of(read(read_own(folder / _CONFIG, MOST_CONFIG_BYTES + 1), Config))
    except FileNotFoundError:
        return None


def forget(found: Membership) -> None:
    """Be in no cluster any more: what is kept is removed. Raises OSError."""
    for one in (found.folder / _FILE, found.key, found.chain, found.authority):
        one.unlink(missing_ok=True)
    private = ("authority.key", "authority.pem", "gateway.pem", "gateway.key")
    for name in (_CONFIG, *private, "members.json", "nodes.json"):
        (found.folder / name).unlink(missing_ok=True)
