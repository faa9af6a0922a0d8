"""What an agent's or model server's handler returns, as an HTTP answer; and requests that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from otel_gym.capture.line import encode_line
from otel_gym.errors import OtelGymError


class AnswerProblem(OtelGymError):
    """A request that is answered with an error: its HTTP status, a code for machines, and the text."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


async def json_object(request: Request) -> dict[str, Any]:
    """The request's body. Raises `AnswerProblem` where it is no JSON object."""
    try:
        body: Any = orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise AnswerProblem(400, "invalid_json", f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise AnswerProblem(
            400, "invalid_json", f"the body must be a JSON object, not a {type(body).__name__}"
        )
    return body


def answer_of(result: Any) -> Response:
    """A handler's result as an answer: a Response as it is, a model or a JSON value as JSON."""
    if isinstance(result, Response):
        return result
    return Response(encode_json(result), media_type="application/json")


def encode_json(value: Any) -> bytes:
    """`value` as JSON; models by their fields, anything else that JSON does not know as text.

    What every reader could not take is made so that it can: lone surrogates become U+FFFD, numbers that are not finite null.
    """
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError):
        if not isinstance(value, Mapping):
            raise
        return encode_line(value).rstrip(b"\n")


def problem_answer(problem: AnswerProblem) -> Response:
    """The answer that tells of `problem`: `{"error": {"code", "message"}}`."""
    error = {"error": {"code": problem.code, "message": str(problem)}}
    return Response(encode_json(error), status_code=problem.status, media_type="application/json")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return str(value)
