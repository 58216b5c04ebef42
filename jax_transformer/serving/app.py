"""The application: paths, their requests and answers, and what becomes of mistakes."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_type_hints

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from jax_transformer import __version__
from jax_transformer.decoding.line_search import NotFiniteError
from jax_transformer.errors import InputError
from jax_transformer.serving.batcher import QueueFullError
from jax_transformer.serving.guard import OPEN, Access, Guard, Limits, Metrics, error_response
from jax_transformer.serving.schemas import (
    AttentionRequest,
    Error,
    Health,
    Models,
    Outputs,
    ParseRequest,
    ScoreRequest,
    Scores,
    TranslateRequest,
    wrong_value,
)
from jax_transformer.serving.service import Service

logger = logging.getLogger(__name__)

PAGE = Path(__file__).with_name("page.html")
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": meaning}
    for status, meaning in {
        400: "The body is not JSON in UTF-8, or the host name is not allowed.",
        401: "The token is missing or wrong.",
        403: "A page of another site asked.",
        408: "The body arrived too slowly.",
        413: "The body is too large.",
        415: "The body is compressed.",
        422: "A value is out of range, or values do not go together.",
        429: "Too many lines wait; try again later.",
        500: "A fault of the server, which it logs.",
        503: "The server is stopping, or it was too busy to answer in time.",
    }.items()
}


def make_app(service: Service, limits: Limits, access: Access) -> Guard:
    """Return the ASGI application of a model."""
    metrics = Metrics(service.batcher)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="jax_transformer",
        version=__version__,
        description=service.model.description,
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=ERRORS,
    )
    _add_errors(app)
    _add_model_paths(app, service)

    @app.get("/models")
    async def models() -> Models:
        """Describe the model that answers."""
        return Models(models=[service.describe()])

    @app.get("/health")
    async def health() -> Health:
        """Answer "ok" once the server is ready; 503 while it is stopping."""
        return Health(status="ok")

    @app.get("/metrics", response_model=None, responses=_text("text/plain"))
    async def counters() -> Response:
        """Return counters in Prometheus' text form."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", response_model=None, responses=_text("text/html"))
    async def page() -> HTMLResponse:
        """Return a page to type in."""
        return HTMLResponse(PAGE.read_text("utf-8"))

    described = app.openapi()  # which FastAPI keeps
    if access.token is not None:
        schemes = {"token": {"type": "http", "scheme": "bearer"}}
        described["components"]["securitySchemes"] = schemes
        described["security"] = [{"token": []}]
        for path in OPEN:
            described["paths"][path]["get"]["security"] = []
    return Guard(app, limits, access, metrics, {*described["paths"], "/openapi.json"})


def _add_model_paths(app: FastAPI, service: Service) -> None:
    """Add the paths for what the model does."""
    if service.model.run.task.verb == "parses":

        @app.post("/parse", response_model_exclude_none=True)
        async def parse(request: ParseRequest) -> Outputs:
            """Parse sentences into Penn bracketings."""
            return Outputs(outputs=await service.outputs(request))

        return

    @app.post("/translate", response_model_exclude_none=True)
    async def translate(request: TranslateRequest) -> Outputs:
        """Translate lines, by beam search or by sampling."""
        return Outputs(outputs=await service.outputs(request))

    @app.post("/score")
    async def score(request: ScoreRequest) -> Scores:
        """Return log P of given translations."""
        return Scores(scores=await service.score(request))

    if not service.has_attention:
        return

    @app.post("/attention", response_model=None, responses=_text("text/html"))
    async def attention(request: AttentionRequest) -> HTMLResponse:
        """Return a page that shows where each token of a sentence and its translation attends."""
        return HTMLResponse(await service.attention(request))


def _text(kind: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {kind: {"schema": {"type": "string"}}}}}


def _add_errors(app: FastAPI) -> None:
    """Answer each kind of mistake with its status and one line of JSON."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        # A name that a request does not have explains that another one is missing.
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        if first["type"] == "json_invalid":
            found = f"something else at character {first['loc'][-1]}"
            return error_response(400, f"body: expected JSON, found {found}; see /openapi.json")
        known = get_type_hints(request.scope["endpoint"])["request"].model_fields
        return error_response(422, wrong_value(first, known))

    @app.exception_handler(InputError)
    async def impossible(_: Request, error: InputError) -> JSONResponse:
        return error_response(422, str(error))

    @app.exception_handler(NotFiniteError)
    async def broken(_: Request, error: NotFiniteError) -> JSONResponse:
        logger.error(str(error))
        return error_response(500, str(error))

    @app.exception_handler(QueueFullError)
    async def full(_: Request, error: QueueFullError) -> JSONResponse:
        busy = "too many lines wait already; try again in a second, or send fewer"
        return error_response(429, busy, {"retry-after": "1"})

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        known, headers = ", ".join(app.openapi()["paths"]), dict(error.headers or {})
        if error.status_code == 405:
            methods = {*headers["Allow"].split(", ")}
            headers["Allow"] = ", ".join(
                sorted(methods | {"HEAD"} if "GET" in methods else methods)
            )
        found = "a number or a nesting that is too long; send less"
        if isinstance(error.__cause__, UnicodeDecodeError):
            found = "other bytes; send it in UTF-8"
        line = {
            400: f"body: expected JSON in UTF-8, found {found}",
            404: f"path: expected one of {known}, found another; see /openapi.json",
            405: f"method: expected {headers.get('Allow')}, found {request.method}",
        }
        found = line.get(error.status_code, str(error.detail))
        return error_response(error.status_code, found, headers)

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> JSONResponse:
        return error_response(500, f"internal error: {type(error).__name__}; see the server's log")
