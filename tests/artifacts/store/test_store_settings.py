"""Settings from the environment, and what a person reads when the S3 server is not as it should be."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from artifacts.errors import InputError, StoreError
from artifacts.store import StoreSettings, open_store
from tests.artifacts.store.store_places import producer

KEYS = {"AWS_ACCESS_KEY_ID": "hetrl-key", "AWS_SECRET_ACCESS_KEY": "planted-secret"}


def settings(**env: str) -> StoreSettings:
    return StoreSettings.from_env({**KEYS, "HETRL_S3_ATTEMPTS": "1", **env})


def test_the_usual_variables_are_understood() -> None:
    found = settings(AWS_ENDPOINT_URL="http://other:1", AWS_ENDPOINT_URL_S3="http://127.0.0.1:8333/", AWS_REGION="eu-west-3")
    assert (found.endpoint_url, found.region, found.path_style, found.loopback) == ("http://127.0.0.1:8333", "eu-west-3", True, True)
    assert settings(AWS_ENDPOINT_URL="https://s3.example.org").endpoint_url == "https://s3.example.org"
    assert settings(AWS_ENDPOINT_URL="https://s3.example.org", HETRL_S3_PATH_STYLE="false").path_style is False
    bare = StoreSettings.from_env({})
    assert (bare.endpoint_url, bare.region, bare.path_style, bare.access_key_id) == (None, "us-east-1", False, None)


def test_settings_do_not_show_their_secrets() -> None:
    assert "planted-secret" not in repr(settings(AWS_SESSION_TOKEN="planted-secret-token"))


@pytest.mark.parametrize(("env", "told"), [
    ({"AWS_SECRET_ACCESS_KEY": ""}, "AWS_ACCESS_KEY_ID is set but AWS_SECRET_ACCESS_KEY is not"),
    ({"AWS_ENDPOINT_URL_S3": "127.0.0.1:8333"}, "not an http"),
    ({"AWS_ENDPOINT_URL_S3": "http://key:planted-secret@host"}, "holds credentials"),
    ({"AWS_ENDPOINT_URL_S3": "http://host:port"}, "not an http"),
    ({"AWS_CA_BUNDLE": "/nowhere.pem"}, "AWS_CA_BUNDLE: /nowhere.pem is not a file"),
    ({"HETRL_S3_PATH_STYLE": "perhaps"}, "neither true nor false"),
    ({"HETRL_S3_ATTEMPTS": "0"}, "HETRL_S3_ATTEMPTS='0' cannot be used"),
    ({"HETRL_S3_READ_TIMEOUT_S": "nan"}, "HETRL_S3_READ_TIMEOUT_S='nan' cannot be used"),
])
def test_a_wrong_variable_is_named(env: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        settings(**env)
    assert "planted-secret" not in caught.value.line


def line_of(url: str, using: StoreSettings) -> str:
    """The one line a person reads when the store is first read and first written."""
    store = open_store(url, settings=using)
    with pytest.raises(StoreError) as reading:
        store.find("schedule", "v1")
    with pytest.raises(StoreError) as writing:
        store.new_version("schedule", "v1").put_bytes("a.json", b"{}")
    for caught in (reading, writing):
        assert caught.value.fix and "\n" not in caught.value.line and "planted-secret" not in caught.value.line
        assert caught.value.__suppress_context__
    return reading.value.line


def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{held.getsockname()[1]}"
        line = line_of("s3://bucket/x", settings(AWS_ENDPOINT_URL_S3=endpoint))
    assert line.startswith(f"StoreError: cannot read s3://bucket/x/hetrl/schedule/v1/manifest.json: nothing answers at {endpoint}")


def test_a_server_that_does_not_answer_is_given_up() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        env = {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{held.getsockname()[1]}", "HETRL_S3_READ_TIMEOUT_S": "0.3"}
        assert "did not answer in time" in line_of("s3://bucket/x", settings(**env))


def test_a_wrong_secret_and_an_unknown_key(s3_server) -> None:
    good = StoreSettings.from_env(s3_server.environment())
    assert "refuses the secret" in line_of("s3://bucket/x", replace(good, secret_access_key="planted-secret"))
    assert "does not know this access key" in line_of("s3://bucket/x", replace(good, access_key_id="who"))


def test_no_certificate_authority_knows_a_plain_http_server(s3_server) -> None:
    good = StoreSettings.from_env(s3_server.environment())
    line = line_of("s3://bucket/x", replace(good, endpoint_url=s3_server.endpoint.replace("http:", "https:"), attempts=1))
    assert "certificate" in line or "broke" in line


@pytest.mark.parametrize("url", ["s3://made-by-a-write", "s3://made-by-another/deep/er/prefix", "s3://with.dots.in.it/x"])
def test_a_bucket_is_made_by_the_first_write(s3_server, url: str) -> None:
    env = {**s3_server.environment()}
    del env["AWS_REGION"]
    store = open_store(url, settings=StoreSettings.from_env(env))
    assert store.stages() == [] and store.find("schedule", "v1") is None and store.latest("schedule") is None
    writer = store.new_version("schedule", "v1")
    writer.put_bytes("a.json", b"{}")
    assert store.publish(writer.commit(producer=producer()).ref) == 1
    assert store.verify() == []


@contextmanager
def s3_that(answers_put: int, code: str) -> Iterator[StoreSettings]:
    """A server that finds nothing and answers every PUT alike, as some do that do not know conditional writes."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer(404, "NoSuchKey")

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.answer(answers_put, code)

        def answer(self, status: int, error: str) -> None:
            body = f"<?xml version='1.0'?><Error><Code>{error}</Code></Error>".encode() if status >= 300 else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield settings(AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(("status", "code", "told"), [
    (501, "NotImplemented", r"does not implement it \(501\): PutObject with If-None-Match"),
    (200, "", "ignores it and overwrites: PutObject with If-None-Match"),
    (403, "AccessDenied", "access denied"),
    (503, "SlowDown", "overloaded"),
    (400, "InvalidArgument", r"the server refused it \(400 InvalidArgument\)"),
    (500, "InternalError", r"the server failed \(500 InternalError\)"),
])
def test_servers_that_cannot_or_will_not_store(status: int, code: str, told: str) -> None:
    with s3_that(status, code) as using:
        store = open_store("s3://bucket/x", settings=using)
        assert store.find("schedule", "v1") is None
        with pytest.raises(StoreError, match=told):
            store.new_version("schedule", "v1").put_bytes("a.json", b"{}")


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    store = open_store((tmp_path / "file").as_uri() + "/store")
    assert store.find("schedule", "v1") is None
    with pytest.raises(StoreError, match=rf"cannot write {tmp_path}/file.*: Not a directory"):
        store.new_version("schedule", "v1").put_bytes("a.json", b"{}")
