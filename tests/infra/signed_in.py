"""Prefect's pages for a browser that cannot type a password: a proxy on loopback that signs in for it."""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_PASSED_ON = ("content-type", "accept", "x-prefect-api-version")


@contextmanager
def signed_in(port: int, auth: str) -> Iterator[str]:
    """The address of the proxy before the server at ``port``; the pages are told to ask it, and that there is nobody to sign in."""

    class Proxy(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0)) or None
            headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
            headers["authorization"] = "Basic " + base64.b64encode(auth.encode()).decode()
            asked = urllib.request.Request(f"http://127.0.0.1:{port}{self.path}", data=body, headers=headers, method=self.command)
            try:
                with urllib.request.urlopen(asked, timeout=60) as got:
                    status, kind, said = got.status, got.headers.get("content-type", ""), got.read()
            except urllib.error.HTTPError as error:
                status, kind, said = error.code, error.headers.get("content-type", ""), error.read()
            if self.path.endswith("/ui-settings"):
                said = json.dumps(json.loads(said) | {"api_url": f"{address}/api", "auth": None}).encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    address = f"http://127.0.0.1:{proxy.server_address[1]}"
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
