"""Apply the rules of admission to each request, before anything of it but its head is looked at."""

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quarterdeck.host.admission import Admission, Answer, Header
from quarterdeck.host.listener import ADMITTED


class Guard:
    """Lets through what is admitted, and answers the rest."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        verdict = self._admission.judge(scope["method"], scope["path"], scope["headers"])
        if isinstance(verdict, Answer):
            response: Response = Response(status_code=verdict.status)
            if verdict.error:
                response = JSONResponse({"error": verdict.error}, verdict.status)
            response.raw_headers.extend(verdict.headers)
            await response(scope, receive, send)
            return
        scope["state"][ADMITTED]()
        await self._app(scope, receive, _adding(verdict.headers, send) if verdict.headers else send)


def _adding(headers: tuple[Header, ...], send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).raw.extend(headers)
        await send(message)

    return add
