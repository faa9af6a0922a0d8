"""A tool loop over the Responses API: the model may ask for sums until it answers.

python examples/tool_agent.py config.yaml, then: otel-gym collect --agent http://127.0.0.1:9001 --config config.yaml ...
"""

import json
import sys
from pathlib import Path
from typing import Any

import uvicorn
from openai import AsyncOpenAI
from starlette.requests import Request

from otel_gym.servers.agent import SimpleResponsesAPIAgent
from otel_gym.settings import load_settings

NUMBERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
ADD: Any = {"type": "function", "name": "add", "parameters": NUMBERS, "strict": False}


class ToolAgent(SimpleResponsesAPIAgent):
    name = "tool_agent"

    async def run(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        base_url = self.base_url_for_run(self.model_server_url, body) + "/v1"
        history: list[Any] = [{"role": "user", "content": body["question"]}]
        calls = 0
        async with AsyncOpenAI(base_url=base_url, api_key="unused") as client:
            while calls < 8:
                calls += 1
                answer = await client.responses.create(model="policy", input=history, tools=[ADD])
                history += answer.output
                asked = [item for item in answer.output if item.type == "function_call"]
                for item in asked:
                    result = str(sum(json.loads(item.arguments).values()))
                    output = {"type": "function_call_output", "call_id": item.call_id}
                    history.append({**output, "output": result})
                if not asked:
                    break
        text = answer.output_text
        reward = float(body["expected"] in text)
        return {"answer": text, "reward": reward, "num_model_calls": calls}


if __name__ == "__main__":
    uvicorn.run(ToolAgent(load_settings(Path(sys.argv[1]))), port=9001)
