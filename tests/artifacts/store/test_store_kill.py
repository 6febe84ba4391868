"""Writers are killed at random moments. Nobody ever sees half a version, and nothing that was committed is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

from artifacts.manifest import Manifest, VersionRef
from artifacts.store import Store
from tests.artifacts.store.store_places import Place, producer

ROUNDS = {"file": 145, "s3": 65}
WARM = 5
SIZES = {"plan.json": 900, "search.json": 60_000, "weights.bin": 400_000}


def write(store: Store, version: str) -> Manifest:
    """One attempt; its content differs from every other attempt's."""
    writer = store.new_version("schedule", version)
    for name, size in SIZES.items():
        writer.put_bytes(name, os.urandom(16) * (size // 16))
    return writer.commit(producer=producer())


def start_writer(place: Place, version: str) -> tuple[int, int]:
    """Fork a writer; returns its pid and a pipe on which it says 'r' when it is about to write and 'c' once committed."""
    reader, pipe = os.pipe()
    pid = os.fork()
    if pid:
        os.close(pipe)
        assert os.read(reader, 1) == b"r"
        return pid, reader
    with suppress(BaseException):
        store = place.open()
        store.find("schedule", version)  # opens the connection
        os.write(pipe, b"r")
        write(store, version)
        os.write(pipe, b"c")
        time.sleep(60)
    os._exit(0)


def test_killed_writers_leave_nothing_half_visible(place: Place) -> None:
    rng = random.Random(7)
    store = place.open()
    rounds = ROUNDS["file" if place.settings is None else "s3"]
    duration_s = usual_duration(place)
    died_midway = committed_by_victim = 0
    for number in range(rounds):
        version = f"v{number}"
        pid, pipe = start_writer(place, version)
        time.sleep(rng.uniform(0, 1.3 * duration_s))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        acknowledged = os.read(pipe, 1) == b"c"
        os.close(pipe)

        found = store.find("schedule", version)
        assert found is not None or not acknowledged, f"{version} was committed and is lost"
        if found is not None:
            assert store.verify(found.ref) == [], f"{version} is visible and not whole"
            committed_by_victim += 1
        else:
            died_midway += bool(store.backend.objects(f"hetrl/schedule/{version}"))
            assert VersionRef(stage="schedule", version=version) not in store.versions("schedule")

        again = write(store, version)
        assert again == (found or again)
        assert store.verify(again.ref) == []

    assert len(store.versions("schedule")) == rounds + WARM
    assert died_midway > rounds // 20 and committed_by_victim > rounds // 20, (died_midway, committed_by_victim)
    store.sweep(0)
    assert store.verify() == []
    assert len(store.backend.objects("hetrl/schedule")) == (rounds + WARM) * (len(SIZES) + 1)


def usual_duration(place: Place) -> float:
    """Seconds from 'about to write' to 'committed', in a forked writer: the median of five."""
    found = []
    for number in range(WARM):
        pid, pipe = start_writer(place, f"warm{number}")
        begin = time.monotonic()
        os.read(pipe, 1)
        found.append(time.monotonic() - begin)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(pipe)
    return sorted(found)[WARM // 2]
