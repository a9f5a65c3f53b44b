"""Read the certificate that the daemon shows to its clients, and make what TLS needs of it, on both ends.

The files are those that a certificate authority's tools write: PEM, the server's own certificate first.
"""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from supervisor.errors import ConfigError

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]+-----END CERTIFICATE-----")
_MOST: Final = 1 << 20  # bytes of a file
_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, which the module has no name for


@dataclass(frozen=True)
class TlsFiles:
    """The paths of a certificate and those that vouch for it, of its key, and of the authorities of clients, if any."""

    cert: str
    key: str
    client_ca: str | None = None

    def stamps(self) -> tuple[object, ...]:
        """Return what changes when one of the files does. Blocks."""
        return tuple(_stamp(one) for one in (self.cert, self.key, self.client_ca) if one is not None)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return what the server end of TLS needs. Raise ConfigError, whose `param` is the setting at fault. Blocks.

    With authorities of clients, only who has a certificate of theirs may connect.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    leaf_of(files)
    _read(files.key, "server.tls_key")
    try:
        context.load_cert_chain(files.cert, files.key, password=lambda: b"")  # else it asks at the terminal
    except (OSError, ValueError) as error:
        raise _wrong(files.key, "server.tls_key", _why(error)) from None
    if files.client_ca is not None:
        authorities = _read(files.client_ca, "server.tls_client_ca")
        try:
            context.load_verify_locations(cadata="\n".join(_PEM.findall(authorities)))
        except (OSError, ValueError):
            raise _wrong(files.client_ca, "server.tls_client_ca", "it holds no certificate in PEM") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def leaf_of(files: TlsFiles) -> str:
    """Return the server's own certificate, in PEM. Raise ConfigError. Blocks."""
    found = _PEM.search(_read(files.cert, "server.tls_cert"))
    if found is None:
        raise _wrong(files.cert, "server.tls_cert", "it holds no certificate in PEM")
    return found[0]


def pinned_context(certificate: str, own: str | None = None) -> ssl.SSLContext:
    """Return what a client needs to talk to whoever has the key of this certificate, and to nobody else.

    Neither its name nor its time counts: who names the certificate names the server. own: a file with the client's
    certificate and key. Raises OSError, ValueError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    if own is not None:
        context.load_cert_chain(own)
    return context


def usual_context(own: str | None = None) -> ssl.SSLContext:
    """Return what a client needs to talk to a server that a usual authority vouches for, or one of `SSL_CERT_FILE`.

    Raises OSError, ValueError.
    """
    context = ssl.create_default_context()
    if own is not None:
        context.load_cert_chain(own)
    return context


def _read(path: str, setting: str) -> str:
    try:
        if not os.path.isfile(path):
            raise _wrong(path, setting, "there is no such file")
        with Path(path).open("rb") as file:
            return file.read(_MOST).decode("latin-1")
    except OSError as error:
        raise _wrong(path, setting, error.strerror or str(error)) from None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "it is not the key of the certificate"
    return "it holds no key in PEM, or one that needs a password"


def _wrong(path: str, setting: str, why: str) -> ConfigError:
    return ConfigError(f"{path} cannot be used: {why}", param=setting)


def _stamp(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
