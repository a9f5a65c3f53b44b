"""The daemon's certificate: read at the start, and anew whenever its files change."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import structlog

from supervisor.config.settings import ServerSettings
from supervisor.errors import ConfigError
from supervisor.system.certificates import TlsFiles, leaf_of, server_context

_log = structlog.get_logger()
_WATCH_S = 1.0


class Certificates:
    """The certificate that new connections are shown. Raises ConfigError where the files are wrong.

    Attributes:
        leaf: the server's own certificate, in PEM.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = files.stamps()
        self._context, self.leaf = server_context(files), leaf_of(files)

    def context(self) -> ssl.SSLContext:
        """Return what a new connection needs."""
        return self._context

    async def watch(self, changed: Callable[[], None]) -> None:
        """Take over files that have changed and then held still for one look; `changed` is called afterwards.

        A new object, and not the present one, gets them: it is replaced once all of it is right. Files that do not fit
        together stay unused, and connections go on with those before. If `changed` raises OSError, as on a full disk,
        it is called again after the next look.
        """
        before, told = self._seen, True
        while True:
            await asyncio.sleep(_WATCH_S)
            now = await asyncio.to_thread(self._files.stamps)
            if now == before and now != self._seen:
                self._seen = now
                told = not await self._take_over() and told
            told = told or _tell(changed)
            before = now

    async def _take_over(self) -> bool:
        """Return whether there is a new one."""
        try:
            context = await asyncio.to_thread(server_context, self._files)
            leaf = await asyncio.to_thread(leaf_of, self._files)
        except ConfigError as error:
            _log.warning("certificate_refused", setting=error.param, reason=error.message)
            return False
        self._context, self.leaf = context, leaf
        _log.info("certificate_reloaded", path=self._files.cert)
        return True


def _tell(changed: Callable[[], None]) -> bool:
    try:
        changed()
    except OSError as error:
        _log.warning("certificate_untold", reason=str(error))
        return False
    return True


def certificates_of(server: ServerSettings) -> Certificates | None:
    """Return the certificate that is configured. Raise ConfigError."""
    files = server.tls_files()
    return None if files is None else Certificates(files)
