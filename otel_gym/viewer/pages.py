"""The pages and their JSON twins as endpoints."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ExceptionHandler

from otel_gym.errors import StoreError, UsageProblem
from otel_gym.viewer.call_page import CallPage
from otel_gym.viewer.charts import context_bars, sections, small_multiples
from otel_gym.viewer.compare_page import ComparePage
from otel_gym.viewer.index.follower import Follower
from otel_gym.viewer.index.indexer import Index
from otel_gym.viewer.options import ViewerOptions
from otel_gym.viewer.rollout_page import CALLS_PER_PAGE, RolloutPage
from otel_gym.viewer.run_page import RunPage
from otel_gym.viewer.run_query import run_query
from otel_gym.viewer.templating import STATIC, plain, render, static_file

SANDBOX: Final = {"content-security-policy": "default-src 'none'; sandbox"}
"""Of bodies as they stand: whatever they are taken for, they can do nothing."""


MOST_IN_TRACE: Final = 100
"""Most rollouts of one trace that are searched for a span; a caller's trace may have any number."""


class Pages:
    """Endpoints of one viewer."""

    def __init__(self, index: Index, follower: Follower, options: ViewerOptions) -> None:
        self._index = index
        self._follower = follower
        self._name = options.directory.name or str(options.directory)
        self._run = RunPage(index)
        follower.after_refresh.append(self._run.prepare)
        self._rollout = RolloutPage(index, options.jaeger_ui)
        self._call = CallPage(index, options.jaeger_ui)
        self._compare = ComparePage(index)

    def exception_handlers(self) -> Mapping[Any, ExceptionHandler]:
        """What an error looks like: a page for people, JSON for programs."""

        def http(request: Request, error: Exception) -> Response:
            assert isinstance(error, HTTPException)
            return self._problem(request, error.status_code, error.detail)

        def usage(request: Request, error: Exception) -> Response:
            return self._problem(request, 400, str(error))

        def store(request: Request, error: Exception) -> Response:
            return self._problem(
                request, 409, f"{error}; the file has changed, load the page again"
            )

        def database(request: Request, error: Exception) -> Response:
            assert isinstance(error, sqlite3.DatabaseError)
            self._index.distrust(error)
            self._follower.attend()
            return self._problem(
                request, 503, f"the index failed and is made anew, load the page again: {error}"
            )

        return {
            HTTPException: http,
            UsageProblem: usage,
            StoreError: store,
            sqlite3.DatabaseError: database,
        }

    # -- pages

    def run(self, request: Request) -> Response:
        """The run page."""
        self._follower.attend()
        query = run_query(request.query_params)
        data = self._run.data(query)
        charts = small_multiples(data["series"], data["totals"])
        twin = f"/run.json{query.url() if query.url() != '?' else ''}"
        return self._page("run.html", data, twin, "/live.json", query=query, charts=charts)

    def run_json(self, request: Request) -> Response:
        """The run page's twin."""
        self._follower.attend()
        return _json(self._run.data(run_query(request.query_params)))

    def rollout(self, request: Request) -> Response:
        """The rollout page."""
        rollout_id = request.path_params["rollout_id"]
        data = self._rollout_data(request, rollout_id)
        axis = data["length_s"] or 1.0
        first = (data["page"] - 1) * CALLS_PER_PAGE
        shown = data["calls"][first : first + CALLS_PER_PAGE]
        return self._page(
            "rollout.html",
            data,
            f"/rollout/{rollout_id}.json",
            f"/live.json?rollout={rollout_id}",
            axis=axis,
            attempts_axis=max(one["duration_ms"] or 0 for one in data["attempts"]) / 1000 or 1.0,
            shown=shown,
            sections=sections(shown, data["pages"] == 1),
            gaps_before={gap["before"]: gap for gap in data["gaps"]},
            context=context_bars(data["calls"]),
        )

    def rollout_json(self, request: Request) -> Response:
        """The rollout page's twin; the same address without its slash or `.json` leads to the page."""
        name = request.path_params["name"]
        if name.endswith(".json") and self._index.refresh_one(name[: -len(".json")]):
            return _json(self._rollout_data(request, name[: -len(".json")]))
        if self._index.refresh_one(name):
            return RedirectResponse(f"/rollout/{name}/", 308)
        raise HTTPException(404, "There is no such rollout here.")

    def call(self, request: Request) -> Response:
        """The call page."""
        path = request.path_params
        data = self._call_data(path["rollout_id"], path["number"])
        twin = f"/rollout/{path['rollout_id']}/call/{path['number']}.json"
        return self._page("call.html", data, twin, None)

    def call_json(self, request: Request) -> Response:
        """The call page's twin; a model call id or span id instead of a number leads to the page."""
        rollout_id, name = request.path_params["rollout_id"], request.path_params["name"]
        stem = name.removesuffix(".json")
        number = int(stem) if stem.isascii() and stem.isdigit() and len(stem) < 16 else None
        if number is not None and stem != name:
            return _json(self._call_data(rollout_id, number))
        if number is None:
            number = self._call.number_of(rollout_id, name)
        if number is None or self._call.find(rollout_id, number) is None:
            raise HTTPException(404, "There is no such call here.")
        return RedirectResponse(f"/rollout/{rollout_id}/call/{number}/", 307)

    def compare(self, request: Request) -> Response:
        """The comparison."""
        data = self._compare_data(request)
        twin = f"/compare.json?a={data['a']['rollout_id']}&b={data['b']['rollout_id']}"
        return self._page("compare.html", data, twin, None)

    def compare_json(self, request: Request) -> Response:
        """The comparison's twin."""
        return _json(self._compare_data(request))

    # -- what pages fetch

    def live(self, request: Request) -> Response:
        """The version of a page, which changes when the page would."""
        self._follower.attend()
        rollout_id = request.query_params.get("rollout")
        if rollout_id is None:
            return _json({"version": self._run.version()})
        row = self._index.rollout(rollout_id)
        if row is None:
            raise HTTPException(404, "There is no such rollout here.")
        return _json({"version": self._rollout.version(row)})

    def raw(self, request: Request) -> Response:
        """A body of a call as it stands in the record."""
        path = request.path_params
        found = self._call.bodies(path["rollout_id"], path["number"])
        body = (found or {}).get(path["kind"])
        if body is None:
            raise HTTPException(404, "The call has no such body.")
        return Response(body.data, media_type=f"{body.media_type}; charset=utf-8", headers=SANDBOX)

    def part(self, request: Request) -> Response:
        """One piece of the conversation in full."""
        path = request.path_params
        data = self._call_data(path["rollout_id"], path["number"])
        sides = {"request": [*data["repeated"], *data["new"]], "response": data["answer"]}
        try:
            text = sides[path["side"]][path["message"]]["parts"][path["part"]]["text"]
        except (KeyError, IndexError):
            raise HTTPException(404, "The call has no such part.") from None
        return _text(text)

    def curl(self, request: Request) -> Response:
        """A call as a curl command."""
        command = self._call.curl(request.path_params["rollout_id"], request.path_params["number"])
        if command is None:
            raise HTTPException(404, "The call has no request that curl could send.")
        return _text(command)

    def trace(self, request: Request) -> Response:
        """The rollout of a trace id, so that a link made for Jaeger's UI also works here; `uiFind` may name a span."""
        trace_id = request.path_params["trace_id"].lower()
        rollout_ids = self._index.rollouts_in_trace(trace_id.rjust(32, "0"))
        if not rollout_ids:
            raise HTTPException(404, "There is no rollout with this trace id here.")
        span = request.query_params.get("uiFind")
        for rollout_id in rollout_ids[:MOST_IN_TRACE]:
            if span and (number := self._call.number_of(rollout_id, span)) is not None:
                return RedirectResponse(f"/rollout/{rollout_id}/call/{number}/", 307)
        return RedirectResponse(f"/rollout/{rollout_ids[0]}/", 307)

    def static(self, request: Request) -> Response:
        """A file of our own."""
        name = request.path_params["name"]
        if name not in STATIC:
            raise HTTPException(404, "There is no such file.")
        headers = {"cache-control": "max-age=31536000, immutable"} if request.url.query else {}
        return Response(static_file(name), media_type=STATIC[name], headers=headers)

    def no_favicon(self, request: Request) -> Response:
        """Browsers ask for it; the pages name another."""
        return Response(status_code=204)

    # -- inside

    def _rollout_data(self, request: Request, rollout_id: str) -> dict[str, Any]:
        self._follower.attend()
        page = request.query_params.get("page", "1")
        if not (page.isascii() and page.isdigit() and len(page) < 8):
            raise UsageProblem("page is a whole number")
        return _found(self._rollout.data(rollout_id, int(page)), "There is no such rollout here.")

    def _call_data(self, rollout_id: str, number: int) -> dict[str, Any]:
        return _found(self._call.data(rollout_id, number), "There is no such call here.")

    def _compare_data(self, request: Request) -> dict[str, Any]:
        first, second = request.query_params.get("a"), request.query_params.get("b")
        if not first or not second:
            raise UsageProblem("compare takes two rollout ids: /compare?a=ID&b=ID")
        return _found(self._compare.data(first, second), "One of the rollouts is not here.")

    def _page(
        self,
        template: str,
        data: Mapping[str, Any],
        twin: str | None,
        live: str | None,
        **more: Any,
    ) -> Response:
        page = render(template, name=self._name, twin=twin, live=live, **data, **more)
        return HTMLResponse(page.encode("utf-8", "backslashreplace"))

    def _problem(self, request: Request, status: int, text: str) -> Response:
        if request.url.path.startswith("/api/") or request.url.path.endswith(".json"):
            return _json({"error": text}, status)
        title = {404: "Not found", 400: "Not understood", 409: "Changed"}.get(status, "Problem")
        page = render(
            "problem.html",
            name=self._name,
            twin=None,
            live=None,
            title=title,
            text=plain(text, 500),
        )
        return HTMLResponse(page.encode("utf-8", "backslashreplace"), status)


def _found(data: dict[str, Any] | None, otherwise: str) -> dict[str, Any]:
    if data is None:
        raise HTTPException(404, otherwise)
    return data


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def _text(text: str) -> Response:
    data = text.encode("utf-8", "backslashreplace")
    return Response(data, media_type="text/plain; charset=utf-8", headers=SANDBOX)
