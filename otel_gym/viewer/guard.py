"""Who may ask what: loopback names or named hosts, GET and HEAD, the token where there is one; and the headers that keep hostile content inert."""

from __future__ import annotations

import hmac
import ipaddress
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE: Final = "otel_gym_view"
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing inline, nothing from elsewhere: markup that slipped through could neither run nor report."""

HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """ASGI middleware around the whole viewer."""

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: frozenset[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, ask for the token, or let through with the headers added."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        response = self._refusal(scope)
        await (response or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        if not self._known_host(headers.get("host", "")):
            # A page elsewhere whose name was pointed at this machine must not read the files (DNS rebinding).
            return PlainTextResponse(
                "This viewer does not answer to that host name; start it with --allow-host NAME.\n",
                421,
            )
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("Read-only.\n", 405, {"allow": "GET, HEAD"})
        if self._token is None:
            return None
        return self._ask_token(scope, headers, self._token)

    def _known_host(self, host: str) -> bool:
        name = host.strip().lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        if name in self._hosts or name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # A number can't be rebound; beyond loopback the token decides.
        return address.is_loopback or self._token is not None

    def _ask_token(self, scope: Scope, headers: dict[str, str], token: str) -> Response | None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if any(key == "token" and _equal(given, token) for key, given in query):
            # Out of the address at once, so that it neither stays in the history nor leaks in a link.
            rest = urlencode([(key, given) for key, given in query if key != "token"])
            path = "/" + scope["path"].lstrip("/\\")
            response = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict")
            return response
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _equal(value.strip(), token):
            return None
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        if cookie is not None and _equal(cookie.value, token):
            return None
        return PlainTextResponse(
            "This viewer asks for its token: open the address that it printed.\n",
            401,
            {"www-authenticate": "Bearer"},
        )


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())
