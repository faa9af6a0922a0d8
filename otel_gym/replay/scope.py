"""Which policy a turn may be replayed to exactly.

The rollout's URL is not part of a scope, because it changes when a rollout is restored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

SCOPE_PREFIX = "nemo-gym/responses/v1:"


@dataclass(frozen=True, slots=True)
class ReplayScope:
    """The configured model server's name and the model alias it answers to.

    >>> str(ReplayScope("policy", "qwen"))
    'nemo-gym/responses/v1:["policy","qwen"]'
    """

    server_name: str
    model_alias: str

    def __post_init__(self) -> None:
        for name in (self.server_name, self.model_alias):
            if not isinstance(name, str) or not name:
                raise ValueError(f"a replay scope needs two non-empty names, not {name!r}")

    def __str__(self) -> str:
        names = [self.server_name, self.model_alias]
        return SCOPE_PREFIX + json.dumps(names, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> ReplayScope:
        """The scope that `str()` gave as `text`; ValueError for anything else."""
        if isinstance(text, str) and text.startswith(SCOPE_PREFIX):
            try:
                names = json.loads(text[len(SCOPE_PREFIX) :])
            except ValueError:
                names = None
            if isinstance(names, list) and len(names) == 2:
                return cls(*names)
        raise ValueError(f"not a replay scope: {text!r} (want {SCOPE_PREFIX}[server, alias])")
