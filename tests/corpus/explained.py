"""The recorded exchanges where the bytes are followed and not the official SDK's reading, each with the reason."""

from __future__ import annotations

EXPLAINED = {
    "anthropic-messages/anthropics__anthropic-sdk-python/incomplete_partial_json_response.json": (
        "The stream ends within the JSON of a tool's input. The SDK completes the JSON by a guess; we keep "
        "the text that came as `_raw`."
    ),
    "openai-chat/posit-dev__chatlas/test_databricks_images.json": (
        "The usage says cache_read_input_tokens 0 and cache_creation_input_tokens 0, fields that the "
        "OpenAI SDK does not know; a zero that was sent is a zero, not null."
    ),
    "openai-chat/pydantic__pydantic-ai/test_openrouter_stream_error.json": (
        "The SDK gives up at the chunk with the error object; that chunk also has the usage, which counts."
    ),
}
"""Recordings by path."""

EXPLAINED_KINDS = {
    ("responses", "error-mid-stream"): (
        "The item that was growing when the error came is kept; the SDK only has items that were done."
    ),
    ("responses", "id-retry-fields"): (
        "A bare `retry:` line makes the SDK's decoder fail; the specification says to ignore it."
    ),
}
"""Derived exchanges by dialect and transform."""
