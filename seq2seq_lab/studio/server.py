"""The server of the studio: files of the page, and questions to the runs as JSON."""

import asyncio
import errno
import logging
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

from seq2seq_lab.errors import UserError
from seq2seq_lab.reporting import studio_page
from seq2seq_lab.reporting.frame import as_json
from seq2seq_lab.studio.fields import FieldError, Fields
from seq2seq_lab.studio.gate import HEADERS, Gate
from seq2seq_lab.studio.questions import QUESTIONS, Studio
from seq2seq_lab.studio.workers import QueueFull, Superseded

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

LONGEST_BODY = 64 * 1024  # bytes
BODY_SECONDS = 10.0
COMPRESSED = 1000  # bytes; shorter answers are sent as they are
LONGEST_PAGE_NAME = 40

log = logging.getLogger(__name__)


def application(studio: Studio, gate: Gate) -> Any:
    """Return the studio as an ASGI application.

    It answers GET of a file of the page, and POST to `api/NAME` of a question of `questions.QUESTIONS`, an object of JSON.
    An error has the status 4xx and a text that names the field. A question that is replaced by a newer one of the same page
    has the status 204 and no text.

    Raises:
        UserError: the packages of the extra `studio` are not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.middleware.gzip import GZipMiddleware
        from starlette.requests import Request
        from starlette.routing import Route
    except ImportError as error:
        raise UserError('The studio needs a server: pip install "seq2seq_lab[studio]".') from error

    questions = Route("/api/{name}", partial(_question, studio), methods=["POST"])
    routes = [Route("/", _file), Route("/{name}", _file), questions]
    handlers: Any = {404: _missing, 405: _missing}
    inner = GZipMiddleware(
        Starlette(routes=routes, exception_handlers=handlers), minimum_size=COMPRESSED, compresslevel=1
    )

    async def gated(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":  # a WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope)
        reply = gate.reply(request.url.query, request.headers)
        if reply is None:
            await inner(scope, receive, send)
            return
        more = {} if reply.cookie is None else {"Set-Cookie": reply.cookie}
        await _answer(reply.text, reply.status, reply.media_type, **more)(scope, receive, send)

    return gated


def _answer(body: str, status: int = 200, media_type: str = "text/plain", **more: str) -> "Response":
    from starlette.responses import Response

    return Response(body, status, {**HEADERS, **more}, media_type)


async def _file(request: "Request") -> "Response":
    name = request.path_params.get("name", studio_page.PAGE)
    if name == "alive":
        return _answer("yes")
    text = studio_page.file_of(name)
    if text is None:
        return _answer("The studio has no such file.", 404)
    return _answer(text, 200, studio_page.media_type(name))


async def _question(studio: Studio, request: "Request") -> "Response":
    from starlette.requests import ClientDisconnect

    name = request.path_params["name"]
    if name not in QUESTIONS:
        return _answer(f"The studio has no such question. Questions: {', '.join(QUESTIONS)}.", 404)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _answer("The body of a question has the type application/json.", 415)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _read(request)
    except TimeoutError:
        return _answer(f"The request was not complete after {BODY_SECONDS:g} s.", 408)
    except ClientDisconnect:
        return _answer("The request ended early.", 400)
    if body is None:
        return _answer(f"The body of a question has at most {LONGEST_BODY:,} bytes.", 413)
    return await _asked(studio, name, body)


async def _read(request: "Request") -> bytes | None:
    """Return the body; None if it is too long."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LONGEST_BODY:
            return None
        parts.append(part)
    return b"".join(parts)


async def _asked(studio: Studio, name: str, body: bytes) -> "Response":
    try:
        fields = Fields.of(body)
        page = fields.text("page", LONGEST_PAGE_NAME, "")
        runs, call = QUESTIONS[name](studio, fields)
        fields.close()
        found = await asyncio.wrap_future(studio.submit((page, name), runs, call))
    except FieldError as error:
        return _answer(str(error), 400)
    except UserError as error:
        return _answer(str(error), 422)
    except Superseded:
        return _answer("", 204)  # unlike 4xx, no error in the console of the browser
    except QueueFull:
        return _answer("The run is busy. Try again in a moment.", 429, **{"Retry-After": "1"})
    except asyncio.CancelledError:
        return _answer("The studio ends.", 503)
    except Exception:
        log.exception("error in the question %s", name)
        return _answer("An error in seq2seq_lab. The terminal of the studio shows it.", 500)
    if isinstance(found, str):  # a page
        return _answer(found, 200, "text/html")
    return _answer(as_json(found), 200, "application/json")


async def _missing(request: "Request", error: Any) -> "Response":
    return _answer(str(error.detail), error.status_code)


def listen(port: int) -> socket.socket:
    """Return a socket of the loopback interface.

    Args:
        port: 0 for a free one.

    Raises:
        UserError: the port is in use or reserved.
    """
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise UserError(
            f"--port={port}: {error.strerror}. Choose another port, or leave it out for a free one."
        ) from error
    # Accepted connections inherit it. Without it, the body of an answer waits 40 ms for the acknowledgement of its header.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def server(studio: Studio, gate: Gate) -> Any:
    """Return the server; its method `run(sockets=[…])` serves until the process is interrupted."""
    app = application(studio, gate)
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
