"""The S3 server goes away, hangs or lies between two calls: one line says so, nothing is lost, and afterwards all goes on."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from artifacts.errors import StoreError
from artifacts.store import Store, StoreSettings, open_store
from flows.services.s3 import S3Server
from tests.artifacts.store.store_places import own_url, producer
from tests.flows.faults.proxy import FaultyProxy

ZEROS = b"0" * 4096


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    address = urlsplit(s3_server.endpoint)
    assert address.hostname and address.port
    proxy = FaultyProxy((address.hostname, address.port), flipped=b"0" * 64, into=b"0" * 63 + b"1")
    yield proxy
    proxy.stop()


def through(proxy: FaultyProxy, s3_server: S3Server, url: str, **variables: str) -> Store:
    env = s3_server.environment() | {"AWS_ENDPOINT_URL_S3": proxy.url, "HETRL_S3_ATTEMPTS": "1"} | variables
    return open_store(url, settings=StoreSettings.from_env(env))


def write(store: Store, version: str) -> None:
    writer = store.new_version("schedule", version)
    writer.put_bytes("a.bin", ZEROS)
    store.publish(writer.commit(producer=producer()).ref)


def test_a_store_that_goes_away_in_the_middle_of_a_version(proxy: FaultyProxy, s3_server: S3Server) -> None:
    store = through(proxy, s3_server, own_url())
    write(store, "v1")
    writer = store.new_version("schedule", "v2")
    writer.put_bytes("a.bin", ZEROS)
    proxy.inject("refuse")
    with pytest.raises(StoreError, match=r"the connection to .* broke|nothing answers at") as caught:
        writer.put_bytes("b.bin", ZEROS)
    assert caught.value.retryable and "check AWS_ENDPOINT_URL_S3" in caught.value.fix
    proxy.inject("none")
    assert [ref.version for ref in store.versions("schedule")] == ["v1"], "what is half written is not there"
    assert store.verify() == []
    write(store, "v2")
    latest = store.latest("schedule")
    assert latest is not None and latest.version == "v2" and store.verify() == []


def test_a_store_that_hangs_is_given_up_and_waited_for_no_longer_than_asked(proxy: FaultyProxy, s3_server: S3Server) -> None:
    url = own_url()
    patient = through(proxy, s3_server, url)
    write(patient, "v1")
    [ref] = patient.versions("schedule")
    proxy.inject("hang")
    with pytest.raises(StoreError, match="did not answer in time") as caught:
        through(proxy, s3_server, url, HETRL_S3_READ_TIMEOUT_S="0.3").read_bytes(ref, "a.bin")
    assert "HETRL_S3_READ_TIMEOUT_S allows more" in caught.value.fix
    proxy.inject("none")
    assert through(proxy, s3_server, url).read_bytes(ref, "a.bin") == ZEROS


def test_what_is_altered_on_the_way_is_refused_and_whole_in_the_store(proxy: FaultyProxy, s3_server: S3Server) -> None:
    store = through(proxy, s3_server, own_url())
    write(store, "v1")
    [ref] = store.versions("schedule")
    proxy.inject("flip")
    with pytest.raises(StoreError, match=r"a\.bin.* is altered: its sha256 is not the manifest's"):
        store.read_bytes(ref, "a.bin")
    proxy.inject("none")
    assert store.read_bytes(ref, "a.bin") == ZEROS and store.verify() == []
