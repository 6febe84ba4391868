"""Join a Ray cluster that somebody else runs, as one more driver that asks for nothing but what it submits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from artifacts.errors import RunnerUnavailable


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Connected to the cluster at ``host:port`` (or ``auto``) for the length of the block; what was submitted ends with it.

    Raises:
        RunnerUnavailable: it cannot be joined from here.
    """
    import ray
    from ray._private import ray_constants

    kept, options = ray_constants.ENABLE_RAY_CLUSTER, dict[str, Any]()
    if address != "auto" and (own := _loopback_node(address)):
        # Ray turns a loopback address into the machine's own, where such nodes do not listen, unless told it is single-host.
        ray_constants.ENABLE_RAY_CLUSTER = False
        options = {"_node_ip_address": own}
    try:
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RunnerUnavailable(f"cannot join the Ray cluster at {address} from here: {str(error).strip().splitlines()[0]}",
                                    fix="run this on a machine that has a Ray node of that cluster, and check with `ray status`") from None
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = kept
        ray.shutdown()


def _loopback_node(address: str) -> str:
    """The loopback address of a node of the cluster on this machine, or "" where its nodes listen on real ones."""
    import ray._raylet

    raylet: Any = ray._raylet
    listening = {n.node_manager_address for n in raylet.GcsClient(address=address).get_all_node_info().values()}
    loopback = sorted(a for a in listening if a.startswith("127.") or a == "::1")
    here = {a.address for addresses in psutil.net_if_addrs().values() for a in addresses}
    return loopback[0] if loopback and not (listening - {*loopback}) & here else ""
