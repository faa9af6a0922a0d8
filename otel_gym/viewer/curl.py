"""A model call as a curl command that another person can run: the same body, and no secret in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

_PATHS: Final = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "completions": "/v1/completions",
}
_SECRET_KEYS: Final = re.compile(
    r"(?i)(^|[_-])(authorization|api[_-]?key|apikey|secret|password|passwd|access[_-]?token|auth[_-]?token|bearer|cookie|private[_-]?key)$"
)
_SECRETS: Final = re.compile(
    r"(?i)\b(bearer\s+[a-z0-9._~+/=-]{8,}|(?:sk|pk|ghp|gho|xox[abp]|glpat|hf)[-_][a-z0-9_-]{12,}|AKIA[0-9A-Z]{16}|eyJ[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}\.[a-z0-9_-]*)"
)
REPLACED: Final = "REDACTED"


def curl_command(raw: Mapping[str, Any], request: Mapping[str, Any]) -> str:
    """The command. Keys come from environment variables; what looks like a secret in the body is replaced."""
    dialect = str(raw.get("dialect"))
    engine = raw.get("engine") if isinstance(raw.get("engine"), dict) else {}
    assert isinstance(engine, dict)
    address, port = engine.get("address"), engine.get("port")
    host = address if isinstance(address, str) and re.fullmatch(r"[\w.:\[\]-]+", address) else ""
    local = host in ("", "127.0.0.1", "localhost", "::1") or host.startswith("127.")
    where = host or "127.0.0.1"
    if ":" in where and not where.startswith("["):
        where = f"[{where}]"
    if type(port) is int and 0 < port < 65536:
        where += f":{port}"
    scheme = "http" if local or (type(port) is int and port not in (443, 8443)) else "https"
    headers = ["content-type: application/json"]
    if dialect == "messages":
        headers += ["x-api-key: $ANTHROPIC_API_KEY", "anthropic-version: 2023-06-01"]
    else:
        headers.append("authorization: Bearer $OPENAI_API_KEY")
    lines = [f"curl -sS {quoted(f'{scheme}://{where}' + _PATHS.get(dialect, '/v1'))}"]
    # Double quotes, so that the shell puts the key in; nothing of the record is inside them.
    lines += [f'  -H "{header}"' for header in headers]
    body = orjson.dumps(without_secrets(request)).decode()
    lines.append(f"  --data-binary {quoted(body)}")
    return " \\\n".join(lines) + "\n"


def without_secrets(value: Any) -> Any:
    """`value` with everything replaced whose key or looks say that it is a secret."""
    if isinstance(value, dict):
        return {
            _SECRETS.sub(REPLACED, key): REPLACED
            if _SECRET_KEYS.search(key) and isinstance(inner, str)
            else without_secrets(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(inner) for inner in value]
    if isinstance(value, str):
        return _SECRETS.sub(REPLACED, value)
    return value


def quoted(text: str) -> str:
    """`text` as one word of a POSIX shell. NUL has no place in one and is left out; orjson writes it as an escape anyway."""
    return "'" + text.replace("\0", "").replace("'", "'\\''") + "'"
