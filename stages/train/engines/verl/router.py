"""Which rollout replica answers a request: shares as the plan deals them. Loaded by verl from a small YAML file.

Imports nothing of verl: the router is an actor of its own and starts at once.
"""

from __future__ import annotations

from typing import Any


class ShareRouter:
    """verl's load-balancer interface, dealing requests by weight: the next goes to the replica furthest below its share.

    ``config["shares"]`` are the plan's ``local_batch_sequences`` of the rollout, in the order of the servers.
    """

    def __init__(self, servers: dict[str, Any], config: dict[str, Any]) -> None:
        self._servers = dict(servers)
        self._shares = dict(zip(servers, (float(s) for s in config["shares"]), strict=True))
        self._dealt = dict.fromkeys(servers, 0)
        self._busy = dict.fromkeys(servers, 0)
        self._home: dict[str, str] = {}

    def acquire_server(self, request_id: str) -> tuple[str, Any]:
        server = self._home.get(request_id)
        if server is None:
            server = min((s for s, share in self._shares.items() if share > 0), key=lambda s: (self._dealt[s] + 1) / self._shares[s])
            self._dealt[server] += 1
            self._home[request_id] = server
        self._busy[server] += 1
        return server, self._servers[server]

    def release_server(self, server_id: str, request_id: str | None = None) -> None:
        self._busy[server_id] -= 1

    def require_acquire_fields(self) -> list[str]:
        return []

    def require_release_fields(self) -> list[str]:
        return []

    def clear_sticky_cache(self) -> dict[str, Any]:
        cleared = len(self._home)
        self._home.clear()
        return {"cleared_entries": cleared, "server_loads": dict(self._busy)}

    def get_all_servers(self) -> list[str]:
        return list(self._servers)

    def get_inflight_count(self, server_id: str) -> int:
        return self._busy.get(server_id, 0)

    def get_total_inflight(self) -> int:
        return sum(self._busy.values())

    def get_status(self) -> dict[str, Any]:
        return {"servers": dict(self._busy), "total_inflight": self.get_total_inflight(), "active_servers": len(self._servers)}

    def add_servers(self, servers: dict[str, Any]) -> None:
        raise NotImplementedError("the plan fixes the rollout's replicas")

    def remove_servers(self, server_ids: list[str]) -> None:
        raise NotImplementedError("the plan fixes the rollout's replicas")
