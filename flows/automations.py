"""What Prefect's server does by itself beside the triggers of ``prefect.yaml``; made by a step of its deployments, once however often."""

from __future__ import annotations

from datetime import timedelta

from prefect.client.orchestration import get_client
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.states import StateType

from flows.services.prefect import HEARTBEAT_S

ZOMBIE_AFTER_S = 4 * HEARTBEAT_S
"""Without a sign of life for so long a run is given up; at least three heartbeats, so that one that is late or lost does no harm."""
ZOMBIES = "hetrl: a run without heartbeat has crashed"
_ALIVE = "prefect.flow-run.heartbeat"
_ENDED = ("Completed", "Failed", "Cancelled", "Crashed", "TimedOut")


def zombie_automation(*, after_s: float = ZOMBIE_AFTER_S, name: str = ZOMBIES) -> AutomationCore:
    """A run whose process was killed together with its worker stays Running for ever: nobody is left to say that it ended."""
    return AutomationCore(
        name=name,
        description=f"Of the flow hetrl: no heartbeat for {after_s:g} s, and it has not ended.",
        trigger=EventTrigger(
            match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
            match_related=ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": "hetrl"}),
            after={_ALIVE},
            expect={_ALIVE, *(f"prefect.flow-run.{state}" for state in _ENDED)},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=after_s)),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", force=False,
                                    message=f"no heartbeat for {after_s:g} s: its process is gone")])


def ensure() -> None:
    """Create the automation, or bring the one of that name up to date. A step of ``prefect deploy``."""
    wanted = zombie_automation()
    with get_client(sync_client=True) as client:
        found = client.read_automations_by_name(wanted.name)
        if not found:
            client.create_automation(wanted)
            return
        client.update_automation(found[0].id, wanted)
        for twin in found[1:]:
            client.delete_automation(twin.id)
