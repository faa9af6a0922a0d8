"""The viewer as a Starlette application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from otel_gym.viewer.guard import Guard
from otel_gym.viewer.index.follower import Follower
from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.jaeger.routes import jaeger_routes
from otel_gym.viewer.options import ViewerOptions
from otel_gym.viewer.pages import Pages
from otel_gym.viewer.templating import warm_up


def create_app(options: ViewerOptions) -> Starlette:
    """The application for one directory. It begins to read the files when the server starts. Raises `StoreError` for a damaged run file."""
    warm_up()
    index = Index(options.directory, options=options.span_options, keep=options.keep_index)
    follower = Follower(index)
    pages = Pages(index, follower, options)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        follower.start()
        yield
        follower.stop()
        index.close()

    app = Starlette(
        routes=[
            Route("/", pages.run),
            Route("/run.json", pages.run_json),
            Route("/live.json", pages.live),
            Route("/compare", pages.compare),
            Route("/compare.json", pages.compare_json),
            Route("/static/{name}", pages.static),
            Route("/favicon.ico", pages.no_favicon),
            Route("/trace/{trace_id}", pages.trace),
            Route("/rollout/{rollout_id}/", pages.rollout),
            Route("/rollout/{name}", pages.rollout_json),
            Route("/rollout/{rollout_id}/call/{number:int}/", pages.call),
            Route("/rollout/{rollout_id}/call/{number:int}/curl.txt", pages.curl),
            Route("/rollout/{rollout_id}/call/{number:int}/raw/{kind}", pages.raw),
            Route(
                "/rollout/{rollout_id}/call/{number:int}/part/{side}/{message:int}/{part:int}.txt",
                pages.part,
            ),
            Route("/rollout/{rollout_id}/call/{name}", pages.call_json),
            *jaeger_routes(index, follower),
        ],
        middleware=[Middleware(Guard, token=options.token, hosts=options.hosts)],
        exception_handlers=pages.exception_handlers(),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.index = index
    return app
