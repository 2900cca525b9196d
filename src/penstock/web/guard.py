"""Who may read the page: the Host header, the token, and the headers of every answer."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.web.address import ip_address_of

#: Cookie that holds the token, once it was given in the address.
COOKIE = "penstock_token"

#: Nothing is loaded from elsewhere, and no script runs that is not a file of the page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def host_of(header: str) -> str:
    """Take the name from a Host header, without port and brackets.

    Examples
    --------
    >>> host_of("localhost:8080"), host_of("[::1]:80"), host_of("10.0.0.1")
    ('localhost', '::1', '10.0.0.1')
    """
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


class Guard:
    """Answers only who names this server, knows the token, and reads.

    A page of another site can make a browser send requests here under a name of its own that
    points to this machine, so names are checked. Addresses in numbers cannot be made to point
    elsewhere.

    Parameters
    ----------
    app : ASGI application
    names : collection of str
        Host names that are answered.
    loopback : bool
        Whether only addresses of this machine are answered.
    token : str or None
        What must come as ``Authorization: Bearer``, in the cookie, or once as ``?token=``.
    """

    def __init__(
        self, app: ASGIApp, names: Collection[str], *, loopback: bool, token: str | None
    ) -> None:
        self._app, self._token = app, token
        self._names = {name.lower() for name in names}
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._refused(scope) or self._app
        await answer(scope, receive, with_headers)

    def _refused(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if not self._named(host_of(headers.get("host", ""))):
            return PlainTextResponse("this server does not answer to that Host name\n", 421)
        if scope["method"] not in ("GET", "HEAD"):
            text = "only GET and HEAD are answered\n"
            return PlainTextResponse(text, 405, {"allow": "GET, HEAD"})
        if self._token is None:
            return None
        query = scope.get("query_string", b"").decode("latin-1")
        asked = parse_qs(query).get("token", [""])[0]
        if asked and self._is_token(asked):
            redirect = RedirectResponse(_without_token(scope["path"], query), 303)
            redirect.set_cookie(COOKIE, asked, httponly=True, samesite="strict", path="/")
            return redirect
        if self._is_token(_bearer(headers)) or self._is_token(_cookie(headers)):
            return None
        text = "a token is needed: open the address that the command printed\n"
        return PlainTextResponse(text, 401, {"www-authenticate": "Bearer"})

    def _named(self, host: str) -> bool:
        address = ip_address_of(host)
        if address is not None:
            return address.is_loopback or not self._loopback
        return host in self._names

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(
            given.encode("utf-8", "replace"), self._token.encode()
        )


def _without_token(path: str, query: str) -> str:
    """Return where to go on once the token is in the cookie, always on this server.

    Examples
    --------
    >>> _without_token("//elsewhere.example/", "points=9&token=t")
    '/elsewhere.example/?points=9'
    """
    rest = urlencode([(name, value) for name, value in parse_qsl(query) if name != "token"])
    return "/" + quote(path.lstrip("/\\")) + (f"?{rest}" if rest else "")


def _bearer(headers: Headers) -> str:
    kind, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _cookie(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""
