"""Pretends to be a remote MCP server on 127.0.0.1 that answers well, and takes no care of HTTP.

It knows no sessions though it gives one, and takes requests from any page and of any version.
Prints one line of JSON when it listens: `{"url": ...}`.  Ends with its stdin.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import checked


class Careless(BaseHTTPRequestHandler):
    """Answers every request with 200."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            message = json.loads(body)
        except ValueError:
            message = None
        self._send(self._answer(message) if isinstance(message, dict) and "id" in message else {})

    def do_GET(self) -> None:
        """Answer with what is no stream."""
        self._send({})

    def do_DELETE(self) -> None:
        self._send({})

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        params = message.get("params") or {}
        try:
            found = {"result": checked.stamped(checked.answer(message["method"], params), params)}
        except checked.RefusedError as error:
            found = {"error": {"code": error.code, "message": str(error)}}
        return {"jsonrpc": "2.0", "id": message["id"], **found}

    def _send(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Mcp-Session-Id", "session-1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Nothing: tests read stderr."""


def main() -> None:
    """Listen, tell where, and serve until stdin ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Careless)
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}/mcp"}), flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
