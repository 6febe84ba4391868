"""A TCP proxy before a real server that does to the bytes what networks and servers do on a bad day."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class FaultyProxy:
    """``fault``: none; refuse (connections are closed, open ones too), hang (what the server says is held back), flip (``flipped`` of what
    the server says comes as ``into``)."""

    def __init__(self, server: tuple[str, int], *, flipped: bytes = b"", into: bytes = b"") -> None:
        assert len(flipped) == len(into)
        self._server, self._flipped, self._into = server, flipped, into
        self._fault, self._open, self._released = "none", [], threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def inject(self, fault: str) -> None:
        self._released.set()
        self._released = threading.Event()
        self._fault = fault
        if fault == "refuse":
            self._close_all()

    def stop(self) -> None:
        self._released.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._close_all()
        self._accepting.join()

    def _close_all(self) -> None:
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open = []

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._fault == "refuse":
                    client.close()
                    continue
                server = socket.create_connection(self._server)
                self._open += [client, server]
                for source, target, answers in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pump, args=(source, target, answers), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if answers and self._fault == "hang":
                    self._released.wait()
                if answers and self._fault == "flip":
                    data = data.replace(self._flipped, self._into)
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
