"""What of a rollout this engine can carry out: a rule of the server each, from the engine's capabilities."""

from __future__ import annotations

from artifacts.catalog.engines import EngineCapability
from artifacts.job import Job
from artifacts.plan import Plan
from artifacts.topology import Topology
from stages.train.engines.verl.modes import rollout_apart
from stages.train.engines.verl.rules import rule


def check_rollout(job: Job, plan: Plan, topology: Topology, engine: EngineCapability) -> None:
    rollout, server = plan.tasks["rollout"], engine.rollout_server
    total, batch = sum(rollout.local_batch_sequences), sum(plan.tasks["actor_training"].local_batch_sequences)
    rule(total == batch, f"the rollout's shares add up to {total}, not to the batch")
    rule(min(rollout.local_batch_sequences) > 0, f"every rollout replica takes part; the shares are {rollout.local_batch_sequences}")
    if engine.rollout.follows_actor:
        _one_a_rank(plan)
    else:
        _replicas(job, plan, topology, engine)
    heads = engine.rollout.head_dims
    head = job.model("actor").head_dim
    rule(not heads or head in heads, f"{server} on these devices has attention for heads of {', '.join(map(str, heads))}; "
         f"{job.model('actor').name} has {head}", fix="choose another model, or set engine.rollout: auto")


def _one_a_rank(plan: Plan) -> None:
    rollout, training = plan.tasks["rollout"], plan.tasks["actor_training"]
    rule(not rollout_apart(plan), f"rollout shares the actor's devices; the plan puts it into group {plan.group_of('rollout').name}")
    rule(rollout.pp == 1 and rollout.tp == 1 and rollout.dp == len(training.ranks),
         f"the rollout is one replica a rank (dp {len(training.ranks)}, pp 1, tp 1); "
         f"the plan has dp {rollout.dp}, pp {rollout.pp}, tp {rollout.tp}")
    rule(sorted(rollout.ranks) == sorted(training.ranks), "the rollout's replicas sit on the actor's devices")


def _replicas(job: Job, plan: Plan, topology: Topology, engine: EngineCapability) -> None:
    rollout, training = plan.tasks["rollout"], plan.tasks["actor_training"]
    rule(rollout.pp == 1, f"a rollout replica has one pipeline stage; the plan has {rollout.pp}")
    most = engine.rollout.max_tp
    rule(rollout.tp <= most, f"a rollout replica has at most {most} shards; the plan has {rollout.tp}")
    model = job.model("actor")
    for what in engine.rollout.tp_divides:
        count = getattr(model, what)
        rule(count % rollout.tp == 0, f"tp {rollout.tp} of rollout divides the model's {what}, {count}")
    if engine.rollout.tp_within_machine:
        for replica in range(rollout.dp):
            shards = rollout.ranks[replica * rollout.tp : (replica + 1) * rollout.tp]
            machines = sorted({topology.device(device).machine for device in shards})
            rule(len(machines) == 1, f"the shards of a rollout replica sit on one machine; those of replica {replica} sit on "
                 f"{', '.join(machines)}", fix="plan again with constraints.fix.rollout.tp: 1, or pin rollout to one machine")
    if rollout_apart(plan):
        others = [task for task in plan.group_of("rollout").tasks if task != "rollout"]
        rule(not others, f"a rollout apart from the actor has its group for itself; the plan puts {', '.join(others)} there too")
    else:
        rule(sorted(rollout.ranks) == sorted(training.ranks), "a rollout in the actor's group uses all of the actor's devices")
