"""Where a model server listens, by its name in the configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from otel_gym.correlation.prefix import apply_rollout_prefix
from otel_gym.errors import SettingsError
from otel_gym.settings import Settings

NAME_VARIABLE: Final = "NEMO_GYM_MODEL_SERVER_NAME"
URL_VARIABLE: Final = "NEMO_GYM_MODEL_SERVER_BASE_URL"
"""What Gym gives to an agent that runs as a subprocess: the model server `NEMO_GYM_MODEL_SERVER_NAME` listens at this URL."""

_WILDCARDS: Final = frozenset(("0.0.0.0", "::", ""))


def model_server_root_url(
    settings: Settings, name: str | None = None, *, environment: Mapping[str, str] = os.environ
) -> str:
    """Root URL (no /v1, no trailing slash) of the model server `name`, or of the only one.

    Raises `SettingsError` where the configuration has no such server or gives it no port.
    """
    given = environment.get(URL_VARIABLE)
    if given and environment.get(NAME_VARIABLE, name) in (name, None):
        return given.rstrip("/").removesuffix("/v1")
    server = settings.model_server(name)
    if server.port is None:
        raise SettingsError(
            f"{settings.source}: model server {server.name!r} has no port, so its URL is not known; give it one"
        )
    host = "127.0.0.1" if server.host in _WILDCARDS else server.host
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


def resolve_model_base_url(
    settings: Settings,
    name: str | None = None,
    rollout_id: str | None = None,
    *,
    token_capture: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """`http://host:port[/ng-rollout/<id>]/v1` of the model server `name`; with an id always prefixed, whatever the settings say.

    Raises `SettingsError`, and `InvalidRolloutId` for an id that breaks the grammar.
    """
    root = model_server_root_url(settings, name, environment=environment)
    return apply_rollout_prefix(root, rollout_id, token_capture=token_capture) + "/v1"
