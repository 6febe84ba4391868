"""verl's trainers, fed by a plan: pinned pools, shares by replica, figures handed out after every iteration.

What the plan says is the same for all of verl's ways to order rollout and training; :data:`TRAINERS` has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from verl.checkpoint_engine import CheckpointEngineManager
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import HybridEngineMode, PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass

from artifacts.errors import StageCrashed
from artifacts.job import TaskName
from artifacts.plan import Plan
from stages.train.engines.verl.dispatch import PIECES, SHARES, TOTAL
from stages.train.engines.verl.modes import Mode
from stages.train.engines.verl.placement import PoolSpec
from stages.train.engines.verl.pools import PinnedPool, PinnedPools
from stages.train.engines.verl.ranks import deal, pieces

POLL_S = 0.02
"""How often the trainer looks whether the rollout has finished. verl's two seconds are half an iteration of a small model."""

POOL_ROLE = {Role.Critic: "critic", Role.RefPolicy: "reference"}
"""verl's role → ours, where it may have a pool of its own; all others live with the actor, and a reward model is not of verl's making."""


@dataclass(frozen=True)
class Step:
    """What verl measured in one iteration, as it names it, and what each worker and server did.

    ``rollout_work`` is by replica in the plan's order. ``reference_work`` is empty where the reference lives in the actor's workers.
    ``overlapped``: the rollout ran beside the training, so its timer is the time that was waited for it.
    """

    number: int
    metrics: dict[str, Any]
    seconds: dict[str, float]
    sequence_tokens: list[int]
    actor_work: list[dict[str, dict[str, float]]]
    critic_work: list[dict[str, dict[str, float]]]
    rollout_work: list[dict[str, float]]
    score_seconds: float
    reference_work: list[dict[str, dict[str, float]]] = field(default_factory=list)
    reward_work: list[dict[str, dict[str, float]]] = field(default_factory=list)
    overlapped: bool = False


@dataclass(frozen=True)
class Orders:
    """What the trainer is told beyond verl's configuration.

    ``groups``: pool → placement groups, a device each; ``replica_of_server``: the plan's replica that each rollout server is;
    ``router``: file of the router's settings; ``reward``: what a reward model has in verl's section for a critic (empty: there is none).
    ``on_checkpoint`` takes over the folder of a checkpoint, after ``on_step`` of its iteration.
    """

    plan: Plan
    specs: list[PoolSpec]
    groups: dict[str, list[Any]]
    replica_of_server: list[int]
    router: str
    on_step: Callable[[Step], None]
    on_checkpoint: Callable[[int, Path], None]
    reward: dict[str, Any] = field(default_factory=dict)

    def spec(self, role: str) -> PoolSpec | None:
        """The pool that was made for ``role``; None where it lives in the actor's workers."""
        return next((spec for spec in self.specs if role in spec.roles), None)


class PlannedTrainer(PPOTrainer):
    """Runs in the stage's own process, so figures and errors reach it directly."""

    agent_loop_manager: Any
    overlapped = False
    reward_wg: Any = None

    def __init__(self, config: Any, orders: Orders) -> None:
        # A rollout with devices of its own is none of verl's "hybrid" replicas; verl then gives actor and reference workers of their own.
        self._rollout_spec, self._reward_spec = orders.spec("rollout"), orders.spec("reward")
        self._orders = orders
        self._lives: list[Any] = []
        self._saved: Path | None = None
        super().__init__(config=config)
        self._enable_hybrid_replicas = self._rollout_spec is None

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
        self._lives = [actor.hold.remote() for actor in (*self._servers(), *agent_loop_manager.agent_loop_workers)]
        super().fit(agent_loop_manager)

    def _check_alive(self) -> None:
        ended, _ = ray.wait(self._lives, timeout=0)
        if ended:
            ray.get(ended[0])

    def _replicas(self) -> list[Any]:
        return [replica for manager in self._rollout_server_managers() for replica in manager.get_replicas()]

    def _servers(self) -> list[Any]:
        return [replica.server_handle for replica in self._replicas()]

    def _init_resource_pool_mgr(self) -> None:
        from stages.train.engines.verl.workers import PlannedActorWorker, PlannedTrainingWorker

        super()._init_resource_pool_mgr()
        actor = self._orders.spec("actor")
        assert actor is not None
        mapping = {}
        for role in self.role_worker_mapping:
            self.role_worker_mapping[role] = ray.remote(PlannedTrainingWorker if role == Role.Critic else PlannedActorWorker)
            mapping[role] = (self._orders.spec(POOL_ROLE.get(role, "actor")) or actor).name
        mapping[Role.RewardModel] = actor.name
        self.mapping = mapping
        pools = {spec.name: PinnedPool(spec, self._orders.groups[spec.name]) for spec in self._orders.specs
                 if spec not in (self._rollout_spec, self._reward_spec)}
        self.resource_pool_manager = PinnedPools(pools, mapping)

    def _setup(self) -> None:
        PPOTrainer._setup(self)  # verl's asynchronous trainer starts a rollout pool of its own idea after it
        shares = {"actor": self._shares("actor_training"), "ref": self._shares("reference_inference")}
        for workers in (self.actor_rollout_wg, self.ref_policy_wg):
            setattr(workers, SHARES, shares)
        if self.use_critic:
            setattr(self.critic_wg, SHARES, {"train": self._shares("critic_training")})
        if self._rollout_spec is not None:
            self._start_rollout(self._rollout_spec)
        if self._reward_spec is not None:
            self._start_reward(self._reward_spec)

    def _start_rollout(self, spec: PoolSpec) -> None:
        """Servers on devices of their own, and the way for weights to get there."""
        from stages.train.engines.verl.rollout_pool import RolloutPool

        pool = RolloutPool.create(config=self.config, spec=spec, groups=self._orders.groups[spec.name], router=self._orders.router)
        engine = omega_conf_to_dataclass(self.config.actor_rollout_ref.rollout.checkpoint_engine)
        self._use_rollout(pool, CheckpointEngineManager(config=engine, actor_wg=self.actor_rollout_wg, replicas=pool.get_replicas()))

    def _start_reward(self, spec: PoolSpec) -> None:
        """Workers for the reward model. Where none score single responses, verl asks for the scores of each batch it has sampled."""
        from stages.train.engines.verl.reward import start_workers

        self.reward_loop_manager.reward_loop_workers = None
        self.reward_wg = start_workers(self.config, self._orders.reward, PinnedPool(spec, self._orders.groups[spec.name]))
        setattr(self.reward_wg, SHARES, {"train": self._shares("reward_inference")})

    def _use_rollout(self, pool: Any, weights: Any) -> None:
        self.llm_server_manager, self.checkpoint_manager = pool, weights

    def placements(self) -> dict[str, list[dict[str, Any]]]:
        """Pool name → where each of its ranks says it is."""
        workers = {"actor": self.actor_rollout_wg, "critic": getattr(self, "critic_wg", None), "reference": self.ref_policy_wg,
                   "reward": self.reward_wg}
        found = {spec.name: workers[spec.roles[0]].hetrl_placement() for spec in self._orders.specs if spec != self._rollout_spec}
        if self._rollout_spec is not None:
            found[self._rollout_spec.name] = [place for replica in self._replicas() for place in replica.worker_group.hetrl_placement()]
        return found

    def weights(self) -> dict[str, Any]:
        """The actor's parameters by their Hugging Face names."""
        return next(found for found in self.actor_rollout_wg.hetrl_weights() if found is not None)

    # -- what each replica gets ----------------------------------------------------------------------------------
    def _shares(self, task: TaskName) -> list[int]:
        """Sequences of each replica in one call of its workers: of an iteration, or of one of the parts verl cuts it into."""
        return [count // self.parameter_sync_step for count in self._orders.plan.tasks[task].local_batch_sequences]

    def _complete(self, batch: Any, task: TaskName) -> list[int]:
        """The shares of a task in a batch that has just been sampled."""
        counts = self._shares(task)
        if len(batch) != sum(counts):
            raise StageCrashed(f"iteration {self.global_steps}: {len(batch)} responses came back, {sum(counts)} were asked for",
                               fix="what went wrong with the others is in the stage's log")
        return counts

    def _compute_reward_colocate(self, batch: Any, metrics: dict[str, Any] | None = None) -> Any:
        """verl's hook for a reward model that scores a batch after it has been sampled."""
        self._complete(batch, "reward_inference")
        told = self._told(batch, "reward_inference")
        told.extra_info |= {"compute_loss": False, "temperature": self.config.actor_rollout_ref.rollout.temperature}
        ray.get(self.reward_wg.compute_scores(told).futures)
        return batch

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *_: Any, **__: Any) -> Any:
        counts = self._complete(batch, "actor_training")
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
        batch.extra_info[PIECES] = pieces(strategy, mini_batches=max(mini_batches, self.parameter_sync_step))
        return batch

    # -- what happened -------------------------------------------------------------------------------------------
    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        self._orders.on_step(Step(
            number=global_steps,
            metrics=metrics,
            seconds=dict(timing_raw),
            sequence_tokens=[int(tag["seq_len"]) for tag in batch.tags],
            actor_work=self.actor_rollout_wg.hetrl_work(),
            critic_work=self.critic_wg.hetrl_work() if self.use_critic else [],
            rollout_work=self._rollout_work(),
            score_seconds=self.agent_loop_manager.take_score_seconds(),
            reference_work=self.ref_policy_wg.hetrl_work() if self.ref_policy_wg is not self.actor_rollout_wg else [],
            reward_work=self.reward_wg.hetrl_work() if self.reward_wg is not None else [],
            overlapped=self.overlapped,
        ))
        if self._saved is not None:
            saved, self._saved = self._saved, None
            self._orders.on_checkpoint(global_steps, saved)

    def _save_checkpoint(self) -> None:
        if self.global_steps < self.total_training_steps:  # after the last iteration nothing is left to go on with
            super()._save_checkpoint()
            self._saved = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    @property
    def restored_prompts(self) -> int:
        """Prompts of a checkpoint of an asynchronous run, sampled or being sampled, that no iteration has trained on."""
        return int(self._restored_tq_prompt_count)

    def reads_everywhere(self, path: Path) -> bool:
        """Whether every training worker reads this file as we do: checkpoints need one folder for all machines."""
        groups = [self.actor_rollout_wg, *([self.critic_wg] if self.use_critic else [])]
        return {path.read_text()} == {found for group in groups for found in group.hetrl_reads(str(path))}

    def _rollout_work(self) -> list[dict[str, float]]:
        work = ray.get([server.take_work.remote() for server in self._servers()])
        return [found for _, found in sorted(zip(self._orders.replica_of_server, work, strict=True), key=lambda pair: pair[0])]


class SyncTrainer(PlannedTrainer, PPOTrainerSync):
    """Rollout, then training, then new weights."""


class ColocateAsyncTrainer(PlannedTrainer, PPOTrainerColocateAsync):
    """Prompts of later iterations are sampled already while this one's are; all take turns with training on the same devices."""


class SeparateAsyncTrainer(PlannedTrainer, PPOTrainerSeparateAsync):
    """Rollout beside training, on devices of its own."""

    overlapped = True

    def _use_rollout(self, pool: Any, weights: Any) -> None:
        self.standalone_server_manager, self.standalone_checkpoint_manager = pool, weights
        self.current_mode = HybridEngineMode.TRAINER


TRAINERS: dict[Mode, type[PlannedTrainer]] = {
    "sync": SyncTrainer, "colocate_async": ColocateAsyncTrainer, "separate_async": SeparateAsyncTrainer,
}
