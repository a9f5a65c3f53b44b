"""The daemon's own certificate authority: who it signs for may be a worker, until it is removed.

Certificates are of P-256 keys. The gateway's is of use for servers alone and workers' for clients alone, so that no
worker can pass for the gateway.
"""

from __future__ import annotations

import datetime
import hmac
import ipaddress
import re
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from supervisor.core.cluster.identity import SERVER, Peer
from supervisor.system.atomic import atomic_write

GATEWAY: Final = "llama-supervisor gateway"
"""The common name of the gateway's certificate."""

_AUTHORITY = "llama-supervisor workers"
_LASTS = datetime.timedelta(days=3650)
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}")
_CLOCKS = datetime.timedelta(days=1)  # how far a worker's clock may be behind


class BadRequest(ValueError):
    """A request of a certificate that is not signed; the text says why."""


class Authority:
    """The authority of one daemon, in a private folder: made there the first time.

    Attributes:
        certificate: its own (PEM).
        fingerprint: SHA-256 of it (DER), in hexadecimal.
        chain, key: the files of the gateway's certificate and key.
    """

    def __init__(self, folder: Path) -> None:
        """Raises OSError, and ValueError where what is there cannot be read."""
        self._key_file, self._file = folder / "authority.key", folder / "authority.pem"
        self.chain, self.key = folder / "gateway.pem", folder / "gateway.key"
        if not (self._key_file.exists() and self._file.exists() and self.chain.exists() and self.key.exists()):
            self._make()
        read = serialization.load_pem_private_key(self._key_file.read_bytes(), None)
        if not isinstance(read, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{self._key_file} holds no key of an elliptic curve")
        self._key = read
        self.certificate = self._file.read_text("ascii")
        self._read = x509.load_pem_x509_certificate(self.certificate.encode())
        self.fingerprint = _fingerprint(self._read).decode()

    def sign(self, request: str, name: str) -> tuple[str, str]:
        """Return a worker's certificate (PEM), and its serial number in hexadecimal.

        request: PEM; its names and extensions count for nothing. Raises BadRequest.
        """
        return self._signed(request, name, ExtendedKeyUsageOID.CLIENT_AUTH)

    def sign_node(self, request: str, name: str, host: str, *, server: bool = False) -> tuple[str, str]:
        """Return the certificate of a node of a cluster, as `sign`: nodes dial each other, so it is of use for both.

        host: where it is dialled. server: it runs a NATS server; those look at both when they connect to each other.
        """
        usage = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
        serial = x509.random_serial_number()
        names = [Peer(name, f"{serial:x}").uri, *((SERVER,) if server else ())]
        where = x509.SubjectAlternativeName([_place(host), *map(x509.UniformResourceIdentifier, names)])
        return self._signed(request, name, *usage, where=where, serial=serial)

    def _signed(
        self,
        request: str,
        name: str,
        *usage: x509.ObjectIdentifier,
        where: x509.SubjectAlternativeName | None = None,
        serial: int | None = None,
    ) -> tuple[str, str]:
        try:
            asked = x509.load_pem_x509_csr(request.encode())
            key = asked.public_key()
            signed = asked.is_signature_valid
        except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature) as error:
            raise BadRequest(f"the request of a certificate cannot be read: {error}") from None
        if not signed or not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise BadRequest("the request of a certificate is not signed by a key of P-256")
        bare = _certificate(name, self._read.subject, key, *usage, serial=serial)
        made = (bare if where is None else bare.add_extension(where, critical=False)).sign(self._key, hashes.SHA256())
        return _pem(made), f"{made.serial_number:x}"

    def _make(self) -> None:
        key, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        subject = _named(_AUTHORITY)
        authority = (
            _bare(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        gateway = _certificate(GATEWAY, subject, own.public_key(), ExtendedKeyUsageOID.SERVER_AUTH).sign(
            key, hashes.SHA256()
        )
        atomic_write(self.key, private_pem(own))
        atomic_write(self.chain, _pem(gateway).encode())
        atomic_write(self._key_file, private_pem(key))
        atomic_write(self._file, _pem(authority).encode())


def proven(certificate: str, fingerprint: str) -> str | None:
    """Return the certificate (PEM) that a stranger has sent, where it is the one of this fingerprint; else None.

    Whatever else the text has is not in what is returned: a second certificate would be trusted as the first.
    """
    try:
        found = x509.load_pem_x509_certificate(certificate.encode("utf-8", "replace"))
    except ValueError:
        return None
    return _pem(found) if hmac.compare_digest(_fingerprint(found), fingerprint.encode()) else None


def _fingerprint(certificate: x509.Certificate) -> bytes:
    """Return the SHA-256 of a certificate's DER form, in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex().encode()


def serial_of(certificate: str) -> str:
    """Return the number of a certificate (PEM), in hexadecimal. Raises ValueError."""
    return f"{x509.load_pem_x509_certificate(certificate.encode()).serial_number:x}"


def new_request() -> tuple[bytes, str]:
    """Return a new key (PEM), and the request of a certificate for it (PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(_named("worker")).sign(key, hashes.SHA256())
    return private_pem(key), request.public_bytes(serialization.Encoding.PEM).decode()


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate(
    name: str,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *usage: x509.ObjectIdentifier,
    serial: int | None = None,
) -> x509.CertificateBuilder:
    return (
        _bare(_named(name), issuer, key, serial)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=True)
    )


def _bare(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, serial: int | None = None
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509
        .CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + _LASTS)
    )


def _place(host: str) -> x509.GeneralName:
    """Return a host as certificates say it. Raises BadRequest.

    Servers know who has a certificate by any name in it, and the names of users and servers have a colon.
    """
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if _NAME.fullmatch(host) is None:
        raise BadRequest("the host is neither an address nor a name")
    return x509.DNSName(host)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
