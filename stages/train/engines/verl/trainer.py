"""verl's synchronous trainer, fed by a plan: pinned pools, shares by replica, figures handed out after every iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from artifacts.errors import StageCrashed
from artifacts.job import TaskName
from artifacts.plan import Plan
from stages.train.engines.verl.dispatch import PIECES, SHARES, TOTAL
from stages.train.engines.verl.placement import PoolSpec
from stages.train.engines.verl.pools import PinnedPool, PinnedPools
from stages.train.engines.verl.ranks import deal, pieces

POLL_S = 0.02
"""How often the trainer looks whether the rollout has finished. verl's two seconds are half an iteration of a small model."""


@dataclass(frozen=True)
class Step:
    """What verl measured in one iteration, as it names it, and what each worker and server did."""

    number: int
    metrics: dict[str, Any]
    seconds: dict[str, float]
    sequence_tokens: list[int]
    actor_work: list[dict[str, dict[str, float]]]
    critic_work: list[dict[str, dict[str, float]]]
    rollout_work: list[dict[str, float]]
    score_seconds: float


@dataclass(frozen=True)
class Orders:
    """What the trainer is told beyond verl's configuration."""

    plan: Plan
    specs: list[PoolSpec]
    pools: dict[str, PinnedPool]
    on_step: Callable[[Step], None]


class PlannedTrainer(PPOTrainerSync):
    """Runs in the stage's own process, so figures and errors reach it directly."""

    agent_loop_manager: Any

    def __init__(self, config: Any, orders: Orders) -> None:
        super().__init__(config=config)
        self._orders = orders
        self._lives: list[Any] = []

    # -- where ---------------------------------------------------------------------------------------------------
    def _build_replay_buffer(self) -> Any:
        buffer: Any = super()._build_replay_buffer()
        buffer.poll_interval = POLL_S
        wait = buffer._wait_for_next_poll

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._check_alive()
            return wait(*args, **kwargs)

        # Responses arrive through the transfer queue: without this a dead server is waited for for ever.
        buffer._wait_for_next_poll = watched
        return buffer

    def fit(self, agent_loop_manager: Any) -> None:
        servers = [replica.server_handle for replica in self.llm_server_manager.get_replicas()]
        self._lives = [actor.hold.remote() for actor in (*servers, *agent_loop_manager.agent_loop_workers)]
        super().fit(agent_loop_manager)

    def _check_alive(self) -> None:
        ended, _ = ray.wait(self._lives, timeout=0)
        if ended:
            ray.get(ended[0])

    def _init_resource_pool_mgr(self) -> None:
        from stages.train.engines.verl.workers import PlannedActorWorker, PlannedTrainingWorker

        super()._init_resource_pool_mgr()
        pool_of = {role: spec.name for spec in self._orders.specs for role in spec.roles}
        mapping = {}
        for role in self.role_worker_mapping:
            critic = role == Role.Critic
            self.role_worker_mapping[role] = ray.remote(PlannedTrainingWorker if critic else PlannedActorWorker)
            mapping[role] = pool_of["critic" if critic else "actor"]
        mapping[Role.RewardModel] = pool_of["actor"]
        self.mapping = mapping
        self.resource_pool_manager = PinnedPools(self._orders.pools, mapping)

    def _setup(self) -> None:
        super()._setup()
        tasks = self._orders.plan.tasks
        setattr(self.actor_rollout_wg, SHARES, {
            "actor": tasks["actor_training"].local_batch_sequences,
            "ref": tasks["reference_inference"].local_batch_sequences,
        })
        if self.use_critic:
            setattr(self.critic_wg, SHARES, {"train": tasks["critic_training"].local_batch_sequences})

    def placements(self) -> dict[str, list[dict[str, Any]]]:
        """Pool name → where each of its ranks says it is."""
        groups = {"actor": self.actor_rollout_wg, "critic": getattr(self, "critic_wg", None)}
        return {spec.name: groups[spec.roles[0]].hetrl_placement() for spec in self._orders.specs}

    # -- what each replica gets ----------------------------------------------------------------------------------
    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *_: Any, **__: Any) -> Any:
        counts = self._orders.plan.tasks["actor_training"].local_batch_sequences
        if len(batch) != sum(counts):
            raise StageCrashed(f"iteration {self.global_steps}: {len(batch)} responses came back, {sum(counts)} were asked for",
                               fix="what went wrong with the others is in the stage's log")
        hands = deal([tag["seq_len"] for tag in batch.tags], counts)
        # Within a hand the order of prompts is kept: mini-batches stay mixtures of prompts, not of lengths.
        batch.reorder([index for hand in hands for index in sorted(hand)])
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return super()._compute_old_log_prob(self._told(batch, "actor_training"), metrics)

    def _compute_ref_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return super()._compute_ref_log_prob(self._told(batch, "reference_inference"), metrics)

    def _compute_values(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return super()._compute_values(self._told(batch, "critic_inference"), metrics)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return super()._update_actor(self._told(batch, "actor_training", mini_batches=self._mini_batches), metrics)

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        return super()._update_critic(self._told(batch, "critic_training", mini_batches=self._mini_batches), metrics)

    @property
    def _mini_batches(self) -> int:
        return self.config.data.train_batch_size // self.config.actor_rollout_ref.actor.ppo_mini_batch_size

    def _told(self, batch: Any, task: TaskName, *, mini_batches: int = 1) -> Any:
        """The batch with what its workers need to know about the others' shares."""
        strategy = self._orders.plan.tasks[task]
        batch.extra_info[TOTAL] = len(batch)
        batch.extra_info[PIECES] = pieces(strategy, mini_batches=mini_batches)
        return batch

    # -- what happened -------------------------------------------------------------------------------------------
    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        servers = [replica.server_handle for replica in self.llm_server_manager.get_replicas()]
        self._orders.on_step(Step(
            number=global_steps,
            metrics=metrics,
            seconds=dict(timing_raw),
            sequence_tokens=[int(tag["seq_len"]) for tag in batch.tags],
            actor_work=self.actor_rollout_wg.hetrl_work(),
            critic_work=self.critic_wg.hetrl_work() if self.use_critic else [],
            rollout_work=ray.get([server.take_work.remote() for server in servers]),
            score_seconds=self.agent_loop_manager.take_score_seconds(),
        ))
