"""The policy client: what it sends, what it keeps, and the order of its failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from otel_gym.replay import PolicyClient, ReplayScope, Turn
from otel_gym.replay.errors import (
    InvalidPolicyOutput,
    PolicyCallBudgetExceeded,
    PolicyRefusal,
    PolicyServerError,
    PreparationError,
    UnsupportedClientCall,
)
from otel_gym.replay.gaps import (
    BUDGET_EXCEEDED,
    FOREIGN_TURN,
    GAP_CODES,
    INVALID_OUTPUT,
    NON_TRAINABLE_OUTPUT,
    PUBLIC_ASSISTANT,
    TIMEOUT,
    TRANSIENT,
)
from tests.replay.samples import BUNDLE, SCOPE, call, message, reasoning, response
from tests.replay.serving import PolicyServer

ASK: dict[str, Any] = {"role": "user", "content": "hi"}
REFUSAL = {"type": "refusal", "refusal": "I won't"}


class Answer(BaseModel):
    value: int


def client(server: PolicyServer, calls: int | None = None, **more: Any) -> PolicyClient:
    scope = more.pop("scope", SCOPE)
    return PolicyClient(server.url, "alias", scope, calls, rollout_id="t-0", **more)


async def test_a_call_goes_through_the_rollout_prefix(policy_server: PolicyServer) -> None:
    """The request has model, input, instructions, tools and parameters, at the rollout's own path."""
    policy_server.answers = [response(message("yes", **BUNDLE))]
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    system = {"role": "system", "content": "be kind"}
    async with client(policy_server) as policy:
        reply = await policy.call([system, ASK], tools=[tool], temperature=0.5)
    assert reply.turn.content == "yes"
    assert reply.turn.scope == SCOPE
    assert reply.parsed is None
    assert policy_server.requests == [
        (
            "/ng-rollout/t-0/v1/responses",
            {
                "temperature": 0.5,
                "model": "alias",
                "instructions": "be kind",
                "tools": [tool],
                "input": [ASK],
            },
        )
    ]
    assert policy.gaps == set()


async def test_the_next_call_carries_the_exact_items(policy_server: PolicyServer) -> None:
    """Turns and tool outputs go back as they came, arrays included."""
    items = [reasoning(**BUNDLE), call()]
    policy_server.answers = [response(*items), response(message())]
    async with client(policy_server) as policy:
        first = await policy.call([ASK])
        output = {"role": "tool", "tool_call_id": "call_1", "content": "4"}
        await policy.call([ASK, first.turn, output])
    sent = policy_server.requests[1][1]["input"]
    assert sent[1:3] == items
    assert sent[3] == {"type": "function_call_output", "call_id": "call_1", "output": "4"}
    assert policy.gaps == set()
    assert len(policy.turns) == 2


async def test_gaps_are_collected_once(policy_server: PolicyServer) -> None:
    """Each condition is in the rollout's gaps once, however many calls met it."""
    policy_server.answers = [response(message())] * 3
    async with client(policy_server, scope=ReplayScope("policy", "new")) as policy:
        other = client(policy_server)
        foreign = (await other.call([ASK])).turn
        await other.aclose()
        history = [ASK, foreign, {"role": "assistant", "content": "example"}]
        await policy.call(history)
        await policy.call(history)
    assert policy.gaps == {FOREIGN_TURN, PUBLIC_ASSISTANT}


async def test_structured_output_is_parsed_from_the_content(policy_server: PolicyServer) -> None:
    """The parsed object comes from the joined text, which a restored turn still holds; tools come first."""
    policy_server.answers = [response(message('{"val'), message('ue": 4}')), response(call())]
    async with client(policy_server) as policy:
        reply = await policy.call([ASK], output_model=Answer)
        assert reply.parsed == Answer(value=4)
        assert Answer.model_validate_json(reply.turn.content) == reply.parsed
        calling = await policy.call([ASK], output_model=Answer)
    assert calling.parsed is None
    assert policy_server.requests[0][1]["text"]["format"]["name"] == "Answer"


async def test_a_preparation_failure_charges_nothing(policy_server: PolicyServer) -> None:
    """A malformed history fails before the budget, also where the budget is spent; a good one recovers."""
    policy_server.answers = [response(message())]
    async with client(policy_server, calls=1) as policy:
        with pytest.raises(PreparationError):
            await policy.call([ASK, {"role": "robot"}])
        assert policy.policy_calls == 0
        assert policy.preparation_error is not None
        await policy.call([ASK])
        assert policy.preparation_error is None
        with pytest.raises(PreparationError, match="request"):
            await policy.call([ASK], temperature=float("nan"))
        assert policy.preparation_error is not None
    assert policy.policy_calls == 1
    assert policy.gaps == set()
    assert len(policy_server.requests) == 1


async def test_a_spent_budget_sends_nothing(policy_server: PolicyServer) -> None:
    """The call after the last is refused, recorded as a gap, and never reaches the server."""
    policy_server.answers = [response(message()), 500]
    async with client(policy_server, calls=2) as policy:
        await policy.call([ASK])
        with pytest.raises(PolicyServerError):
            await policy.call([ASK])
        for _ in range(2):
            with pytest.raises(PolicyCallBudgetExceeded, match="used its 2 policy calls"):
                await policy.call([ASK])
    assert policy.gaps == {BUDGET_EXCEEDED, TRANSIENT}
    assert len(policy_server.requests) == 2


async def test_a_failed_response_is_captured_and_no_answer(policy_server: PolicyServer) -> None:
    """A response that says that it failed is kept as evidence, and an agent never goes on from it; a cut one is an answer."""
    failed = response(message("so far", **BUNDLE), status="failed", error={"message": "boom"})
    cut = response(
        message("so far"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    )
    policy_server.answers = [failed, cut]
    async with client(policy_server) as policy:
        with pytest.raises(PolicyServerError, match="the response failed") as caught:
            await policy.call([ASK])
        assert caught.value.turn is policy.turns[0]
        assert policy.gaps == {TRANSIENT}
        assert (await policy.call([ASK])).turn.finish_reason == "max_output_tokens"


async def test_a_tool_that_is_no_object_is_a_preparation_failure(
    policy_server: PolicyServer,
) -> None:
    """A malformed tool is named before anything is charged."""
    async with client(policy_server) as policy:
        with pytest.raises(PreparationError) as caught:
            await policy.call([ASK], tools=[{"type": "function"}, "look"])  # type: ignore[list-item]
        assert caught.value.field == "tools[1]"
        assert policy.preparation_error is caught.value
    assert policy.policy_calls == 0


async def test_a_refusal_beside_valid_json_fails(policy_server: PolicyServer) -> None:
    """Valid JSON does not save a refusal; the turn is captured all the same."""
    blocks = [{"type": "output_text", "text": '{"value": 4}'}, REFUSAL]
    policy_server.answers = [response(message(content=blocks))] * 2
    async with client(policy_server) as policy:
        with pytest.raises(PolicyRefusal) as caught:
            await policy.call([ASK], output_model=Answer)
        assert caught.value.turn is policy.turns[0]
        assert (await policy.call([ASK])).turn.refusal == "I won't"
    assert policy.gaps == {INVALID_OUTPUT}


@pytest.mark.parametrize(
    "kind",
    ["custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"],
)
async def test_an_unsupported_call_is_captured_then_refused(
    policy_server: PolicyServer, kind: str
) -> None:
    """The turn with a call that nobody can answer is kept as evidence and never returned, refusal or not."""
    item = {"id": "x", "type": kind, "call_id": "c", "input": "y"}
    answer = response(message(content=[REFUSAL], **BUNDLE), item, call())
    policy_server.answers = [answer]
    kept: list[Turn] = []
    async with client(policy_server, on_capture=kept.append) as policy:
        with pytest.raises(UnsupportedClientCall, match=kind) as caught:
            await policy.call([ASK], output_model=Answer)
    assert caught.value.turn is kept[0] is policy.turns[0]
    assert kept[0].native == answer["output"]
    assert policy.gaps == {NON_TRAINABLE_OUTPUT}


@pytest.mark.parametrize("text", ["", "{", '{"value": "x"}', "[]"])
async def test_other_text_is_invalid_output(policy_server: PolicyServer, text: str) -> None:
    """Text that is not the model asked for is captured, then refused without repeating it."""
    policy_server.answers = [response(message(text))]
    async with client(policy_server) as policy:
        with pytest.raises(InvalidPolicyOutput, match="the text is no Answer") as caught:
            await policy.call([ASK], output_model=Answer)
    assert not isinstance(caught.value, PolicyRefusal)
    assert policy.turns[0].content == text
    assert policy.gaps == {INVALID_OUTPUT}


@pytest.mark.parametrize(
    ("answer", "status"),
    [(503, 503), (b"not json", 200), (b'{"output": null}', 200)],
)
async def test_an_unusable_answer_is_a_server_error(
    policy_server: PolicyServer, answer: Any, status: int
) -> None:
    """An error status and an answer that is no response leave no turn."""
    policy_server.answers = [answer]
    async with client(policy_server) as policy:
        with pytest.raises(PolicyServerError) as caught:
            await policy.call([ASK])
    assert caught.value.status_code == status
    assert policy.turns == ()
    assert policy.gaps == {TRANSIENT}


async def test_transport_failures_have_their_codes(policy_server: PolicyServer) -> None:
    """A slow server is a timeout, an absent one a transient failure; both were charged."""
    policy_server.answers = [1.0]
    async with client(policy_server, timeout_s=0.1) as policy:
        with pytest.raises(PolicyServerError, match="timed out"):
            await policy.call([ASK])
        assert policy.gaps == {TIMEOUT}
    absent = PolicyServer(url="http://127.0.0.1:9")
    async with client(absent) as policy:
        with pytest.raises(PolicyServerError, match="ConnectError"):
            await policy.call([ASK])
        assert policy.gaps == {TRANSIENT}
        assert policy.policy_calls == 1


async def test_a_client_serves_several_event_loops(policy_server: PolicyServer) -> None:
    """Calls from another thread's event loop, as frameworks make them, work beside those of this one."""
    policy_server.answers = [response(message(text)) for text in "abc"]

    async def one_call(policy: PolicyClient) -> str:
        try:
            return (await policy.call([ASK])).turn.content
        finally:
            await policy.aclose()

    policy = client(policy_server)
    first = (await policy.call([ASK])).turn.content
    second = await asyncio.to_thread(lambda: asyncio.run(one_call(policy)))
    assert [first, second, await one_call(policy)] == ["a", "b", "c"]
    assert policy.policy_calls == 3


def test_every_error_has_a_known_gap_code() -> None:
    """Whatever ends a call, its code is one of the documented ones."""
    made: list[Callable[[], Any]] = [
        lambda: PolicyCallBudgetExceeded("x"),
        lambda: PolicyServerError("x", timed_out=True),
        lambda: PolicyRefusal("x"),
    ]
    assert {make().gap_code for make in made} <= GAP_CODES
