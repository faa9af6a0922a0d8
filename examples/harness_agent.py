"""An agent that plays each rollout with an unmodified harness in a subprocess: Codex, Claude Code, or anybody's script.

Its configuration block gives the command; {prompt}, {openai_base_url} and {anthropic_base_url} are filled in:

    coder:
      responses_api_agents:
        harness:
          command: [claude, -p, "{prompt}"]
          timeout_s: 600
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import uvicorn
from starlette.requests import Request

from otel_gym.servers.agent import SimpleResponsesAPIAgent
from otel_gym.settings import load_settings


class HarnessAgent(SimpleResponsesAPIAgent):
    name = "coder"

    async def run(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        root = self.base_url_for_run(self.model_server_url, body)
        filled = {
            "prompt": body["prompt"],
            "openai_base_url": f"{root}/v1",
            "anthropic_base_url": root,
        }
        command = [_fill(part, filled) for part in self.config["command"]]
        with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as work:
            environment = {
                **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
                "HOME": home,
                "OPENAI_BASE_URL": filled["openai_base_url"],
                "ANTHROPIC_BASE_URL": filled["anthropic_base_url"],
                "OPENAI_API_KEY": "unused",
                "ANTHROPIC_API_KEY": "unused",
                **self.config.get("environment", {}),
            }
            for name, value in self.trace_headers_for_run(body).items():
                environment[name.upper()] = value
            code, out, err = await self._finish(command, environment, work)
        tail = {"stdout": out[-4000:], "stderr": err[-4000:]}
        return {"exit_code": code, "reward": float(code == 0), **tail}

    async def _finish(
        self, command: list[str], environment: dict[str, str], work: str
    ) -> tuple[int, str, str]:
        """(exit code, stdout, stderr). However we leave, the harness and what it has started end."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=work,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self.config.get("timeout_s", 600)):
                out, err = await process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        assert process.returncode is not None
        return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def _fill(part: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        part = part.replace(f"{{{name}}}", value)
    return part


if __name__ == "__main__":
    uvicorn.run(HarnessAgent(load_settings(Path(sys.argv[1]))), port=9002)
