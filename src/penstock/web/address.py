"""Where a page is served: a host, a port, and a token where others reach it."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from dataclasses import dataclass
from urllib.parse import quote

from penstock.common.errors import InvalidValue, PenstockError

#: Host and port unless others are asked for; a port that is taken is answered by the next free one.
HOST, PORT = "127.0.0.1", 8765

#: Ports that are tried after `PORT`.
TRIES = 20

#: Environment variable with the token of a page that others reach.
TOKEN_VARIABLE = "PENSTOCK_PAGE_TOKEN"


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host name or address.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    address = ip_address_of(host)
    return address is not None and address.is_loopback


def ip_address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read an address of the internet protocol; None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@dataclass(frozen=True)
class PageAddress:
    """A host and a port.

    Parameters
    ----------
    host : str
    port : int or None
        None: `PORT`, or the next that is free.
    token : str or None
        What readers must know.
    """

    host: str = HOST
    port: int | None = None
    token: str | None = None

    @classmethod
    def parse(cls, text: str) -> PageAddress:
        """Read ``HOST:PORT``, ``HOST``, ``:PORT`` or nothing.

        An address that others reach gets the token of the environment, or one that is made here.

        Examples
        --------
        >>> PageAddress.parse(":9000")
        PageAddress(host='127.0.0.1', port=9000, token=None)
        >>> PageAddress.parse("127.0.0.1:http")
        Traceback (most recent call last):
        ...
        penstock.common.errors.InvalidValue: parameter page of the command must be \
HOST:PORT with a port from 0 to 65535, got '127.0.0.1:http'
        """
        host, colon, port = text.rpartition(":")
        if not colon:
            host, port = text, ""
        if text.startswith("[") and text.endswith("]"):
            host, port = text, ""
        host = host.strip("[]") or HOST
        if port and not (port.isdecimal() and int(port) < 65536):
            allowed = "HOST:PORT with a port from 0 to 65535"
            raise InvalidValue("page", "the command", allowed, text)
        token = os.environ.get(TOKEN_VARIABLE) or None
        if token is None and not is_loopback(host):
            token = secrets.token_urlsafe(24)
        return cls(host, int(port) if port else None, token)

    def bind(self) -> socket.socket:
        """Take the port.

        Raises
        ------
        PenstockError
            When it is taken, or the host is not of this machine.
        """
        ports = [self.port] if self.port is not None else [*range(PORT, PORT + TRIES), 0]
        problem: OSError | None = None
        for port in ports:
            try:
                family, kind, protocol, _, where = socket.getaddrinfo(
                    self.host, port, type=socket.SOCK_STREAM
                )[0]
                taken = socket.socket(family, kind, protocol)
            except OSError as error:
                problem = error
                continue
            try:
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                taken.bind(where)
            except OSError as error:
                taken.close()
                problem = error
                continue
            return taken
        raise PenstockError(f"the page cannot be served at {self}: {problem}")

    def url(self, bound: socket.socket) -> str:
        """Return what to open in a browser, with the token if there is one."""
        port = bound.getsockname()[1]
        host = f"[{self.host}]" if ":" in self.host else self.host
        if host in ("0.0.0.0", "[::]"):
            host = socket.gethostname()
        return f"http://{host}:{port}/" + (
            f"?token={quote(self.token, safe='')}" if self.token else ""
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.port if self.port is not None else PORT}"
