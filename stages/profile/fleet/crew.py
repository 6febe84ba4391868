"""The agents on a Ray cluster, asked in parallel; who does not answer in time, or is gone, is lost and asked no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from stages.profile.fleet.agent import Agent, Answer
from stages.profile.fleet.nodes import Node

MARGIN_S = 15.0
"""What an agent may take on top of its probe's own deadline, on a busy machine."""
STOP_S = 3.0


class Crew:
    """``lost``: machine → why. ``on_lost`` is told of each at once."""

    def __init__(self, nodes: Sequence[Node], *, on_lost: Callable[[str, str], None]) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.nodes = {n.name: n for n in nodes}
        self.lost: dict[str, str] = {}
        self._on_lost = on_lost
        remote = ray.remote(num_cpus=0, max_restarts=0)(Agent)
        self._agents: dict[str, Any] = {}
        for node in nodes:
            there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
            self._agents[node.name] = remote.options(scheduling_strategy=there).remote(node.name, node.address)

    @property
    def present(self) -> list[str]:
        return [name for name in self.nodes if name not in self.lost]

    def ask(self, calls: Iterable[tuple[str, str, Mapping[str, Any]]], *, within_s: float) -> list[Answer]:
        """``(machine, method, arguments)`` all at once, each to be answered within ``within_s`` and a margin; answers in their order.

        The answer of a machine that is lost, by now or already, is its fault.
        """
        import ray

        asked = [(name, what, getattr(self._agents[name], what).remote(**arguments) if name not in self.lost else None)
                 for name, what, arguments in calls]
        waiting = [reference for _, _, reference in asked if reference is not None]
        ready, late = ray.wait(waiting, num_returns=len(waiting), timeout=within_s + MARGIN_S) if waiting else ([], [])
        done, overdue = set(ready), set(late)
        answers: list[Answer] = []
        for name, what, reference in asked:
            if reference in overdue:
                self.lose(name, f"its agent did not {what} within {within_s + MARGIN_S:.0f} s")
            elif reference in done:
                try:
                    answers.append(ray.get(reference, timeout=MARGIN_S) or {})
                    continue
                except (ray.exceptions.RayError, ImportError) as error:
                    self.lose(name, _why(error))
            answers.append({"fault": self.lost[name]})
        return answers

    def lose(self, name: str, why: str) -> None:
        if name not in self.lost:
            self.lost[name] = why
            self._kill(name)
            self._on_lost(name, why)

    def close(self) -> None:
        """Ends the agents' probes, then the agents."""
        import ray

        with suppress(ray.exceptions.RayError):
            leaving = [self._agents[name].close.remote() for name in self.present]
            if leaving:
                ray.wait(leaving, num_returns=len(leaving), timeout=STOP_S)
        for name in self.present:
            self._kill(name)

    def _kill(self, name: str) -> None:
        import ray

        with suppress(ray.exceptions.RayError, ValueError):
            ray.kill(self._agents[name])


def _why(error: BaseException) -> str:
    """One line: Ray's errors are paragraphs, and a missing module on a node is told from a dead node."""
    text = str(error)
    if "ModuleNotFoundError" in text or "ImportError" in text:
        missing = next((line.strip() for line in reversed(text.splitlines()) if "ModuleNotFoundError" in line or "ImportError" in line), "")
        return f"it cannot run HetRL's probes ({missing}): install hetrl there"
    if type(error).__name__ in ("ActorDiedError", "RayActorError", "ActorUnavailableError", "NodeDiedError", "ActorUnschedulableError"):
        return "its Ray node is gone, or its agent was killed"
    return f"its agent failed: {type(error).__name__}: {next(iter(text.strip().splitlines()), 'no message')[:200]}"
