"""Completions streams."""

from __future__ import annotations

from tests.dialects.streams import DONE, data, read, response


def chunk(*choices: dict[str, object], **fields: object) -> bytes:
    """A Completions chunk."""
    return data({"id": "c", "object": "text_completion", "choices": list(choices), **fields})


def test_choices_with_log_probabilities_and_token_ids() -> None:
    """Text and every list grow by choice; prompt token ids and usage stay."""
    first = {
        "index": 0,
        "text": "Say",
        "logprobs": {
            "tokens": ["Say"],
            "token_logprobs": [None],
            "text_offset": [0],
            "top_logprobs": None,
        },
        "finish_reason": None,
        "token_ids": [5],
        "prompt_token_ids": [1, 2],
    }
    second = {
        "index": 0,
        "text": " it",
        "logprobs": {
            "tokens": [" it"],
            "token_logprobs": [-1.5],
            "text_offset": [3],
            "top_logprobs": None,
        },
        "finish_reason": "stop",
        "stop_reason": 7,
        "token_ids": [6],
    }
    found = response(
        "completions",
        chunk(first, {"index": 1, "text": "B"}, model="m"),
        chunk(second, model="m"),
        chunk(model="m", usage={"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}),
        DONE,
    )
    assert found == {
        "id": "c",
        "object": "text_completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "text": "Say it",
                "logprobs": {
                    "tokens": ["Say", " it"],
                    "token_logprobs": [None, -1.5],
                    "text_offset": [0, 3],
                    "top_logprobs": None,
                },
                "finish_reason": "stop",
                "token_ids": [5, 6],
                "prompt_token_ids": [1, 2],
                "stop_reason": 7,
            },
            {"index": 1, "text": "B", "finish_reason": None},
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5},
    }


def test_equal_pieces_in_a_row_are_all_kept() -> None:
    """A chunk that says the same as the one before it still adds its text."""
    piece = chunk({"index": 0, "text": "a", "reasoning": "r"})
    (choice,) = response("completions", piece, piece, piece, DONE)["choices"]
    assert choice["text"] == "aaa" and choice["reasoning"] == "rrr"


def test_an_error_and_a_cut() -> None:
    """The text before an in-band error survives, without `[DONE]` nothing is complete."""
    reading = read(
        "completions", chunk({"index": 0, "text": "a"}), data({"error": {"message": "m"}})
    )
    assert reading.terminal == "error" and reading.error == {"message": "m"}
    assert reading.response is not None and reading.response["choices"][0]["text"] == "a"
    assert read("completions", chunk({"index": 0, "text": "a"})).terminal is None
