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
"""Recordings by path, where no reading of the SDK says what the record says."""

EXPLAINED_BY_CHUNKS = {
    "openai-chat/0xPlaygrounds__rig/raw_followup_uses_tool_result_without_new_tool_calls__1.json": (
        "The id is empty in a first chunk that only has content filter results and is the same in every chunk after "
        "it. The SDK's accumulator keeps the first one; an empty string identifies nothing."
    ),
    "openai-chat/0xPlaygrounds__rig/stream_raw_exposes_terminal_usage_and_object.json": (
        "The last chunk, which has finish_reason stop, is of the object chat.completion.done. The SDK's accumulator skips "
        "chunks of another object than chat.completion.chunk and then has no finish reason."
    ),
    "openai-chat/prism-php__prism/stream-basic-text-1_ea6324.json": (
        "The same: finish_reason stop is in a chunk of the object chat.completion.done."
    ),
}
"""Recordings by path, where the SDK's accumulator skips something that its own reading of the single chunks has."""

EXPLAINED_KINDS = {
    ("responses", "error-mid-stream"): (
        "The item that was growing when the error came is kept; the SDK only has items that were done."
    ),
    ("responses", "id-retry-fields"): (
        "A bare `retry:` line makes the SDK's decoder fail; the specification says to ignore it."
    ),
}
"""Derived exchanges by dialect and transform."""
