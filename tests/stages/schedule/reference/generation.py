"""How long a rollout takes: sequences admitted by memory, prefill, decoding at full house, and the tail in which the last responses end."""

from __future__ import annotations

from dataclasses import dataclass

from stages.schedule.draft import Layout
from stages.schedule.problem import Problem
from tests.stages.schedule.reference.fleet import Crossings, Fleet
from tests.stages.schedule.reference.lengths import expected_longest, mean_age, nodes, survival
from tests.stages.schedule.reference.links import all_reduce, hop
from tests.stages.schedule.reference.memory import GroupMemory
from tests.stages.schedule.reference.tasks import SLOWER, Terms, hop_crossings, tp_crossings


@dataclass(frozen=True)
class Step:
    """Seconds of computing or reading, of all-reduces, of hops between stages, of waiting for the host."""

    work: float
    tp: float
    pp: float
    host: float = 0.0

    @property
    def seconds(self) -> float:
        return self.work + self.tp + self.pp

    def times(self, count: float) -> Step:
        return Step(count * self.work, count * self.tp, count * self.pp, count * self.host)

    def __add__(self, other: Step) -> Step:
        return Step(self.work + other.work, self.tp + other.tp, self.pp + other.pp, self.host + other.host)


NOTHING = Step(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Admission:
    """By replica: sequences at once, KV bytes of a shard of each stage. ``lack`` is the worst replica's, relative, for one sequence of maximum length."""

    in_flight: list[int]
    kv: list[list[float]]
    lack: float


def admit(problem: Problem, fleet: Fleet, layout: Layout, memory: GroupMemory) -> Admission:
    """Sequences at once, bounded by the engine's cap and by the KV memory of the scarcest shard.

    A continuous batch is admitted at mean length, a static one at maximum length; the cache given is that of sequences of maximum length,
    as far as there is room. Numbers keep four binary digits, so that replicas of nearly equal room are of one kind.
    """
    model, work, rollout = problem.task("rollout").model, problem.work, problem.engine.rollout
    in_flight, caches, lack = [], [], 0.0
    for i, replica in enumerate(layout.ranks.tolist()):
        cap, longest_kv, rooms, lacks = rollout.sequences_in_flight, [], [], [0.0]
        for layers, shards in zip(layout.layers, replica, strict=True):
            token = layers * model.kv_bytes_per_token_layer(problem.element_bytes) / layout.tp
            longest = token * work.sequence_max
            each = token * (work.prompt_mean + work.response_mean) if rollout.continuous_batching else longest
            free = min(fleet.usable[d] - memory.held(d) - memory.working["rollout"][d] for d in shards)
            cap = min(cap, max(1, int(free // each)))
            longest_kv.append(longest)
            rooms.append(max(free, longest))
            lacks.append(longest - free)
        lack = max(lack, max(lacks) / min(fleet.usable[d] for shards in replica for d in shards))
        in_flight.append(min(four_binary_digits(cap), layout.local[i]))
        caches.append([min(in_flight[-1] * longest, min(rooms)) for longest in longest_kv])
    return Admission(in_flight, caches, lack)


def four_binary_digits(count: int) -> int:
    """Rounded down."""
    step = 2 ** max(0, count.bit_length() - 4)
    return count // step * step


@dataclass(frozen=True)
class Replica:
    """One generation replica: its stages' layers and ranks ``[pp][tp]``, and what crosses machines with it."""

    problem: Problem
    fleet: Fleet
    layers: tuple[int, ...]
    ranks: list[list[int]]
    crossings: Crossings

    @property
    def pp(self) -> int:
        return len(self.ranks)

    def weight_bytes(self, stage: int) -> float:
        """Read in a pass: the layers, and on the last stage the head."""
        model, w = self.problem.task("rollout").model, self.problem.element_bytes
        return w * (self.layers[stage] * model.layer_params() + (model.embedding_params() if stage == self.pp - 1 else 0))

    def moved(self, stage: int, tokens: float) -> tuple[float, float]:
        """Seconds of (two all-reduces a layer, the hop to the next stage) of ``tokens`` activations."""
        bytes_ = tokens * self.problem.task("rollout").model.hidden * self.problem.element_bytes
        reduce = 2 * self.layers[stage] * all_reduce(self.fleet, self.ranks[stage], bytes_, self.crossings)
        last = stage == self.pp - 1
        part = bytes_ / len(self.ranks[stage])
        return reduce, 0.0 if last else hop(self.fleet, self.ranks[stage], self.ranks[stage + 1], part, self.crossings)

    def rate(self, stage: int, tokens: float) -> float:
        shards = self.ranks[stage]
        return self.fleet.slowest_rate(shards, tokens=tokens, hidden=self.problem.task("rollout").model.hidden, tp=len(shards))

    def stage_step(self, stage: int, sequences: float, context: float) -> Step:
        """A token for each of ``sequences`` on one stage: weights are read or multiplied, whichever takes longer; then caches are read or
        their attention computed, at the best rate there is, whichever takes longer.
        """
        model, shards, layers = self.problem.task("rollout").model, self.ranks[stage], self.layers[stage]
        memory, best = self.fleet.slowest_memory(shards), min(self.fleet.curves[self.fleet.device_class[d]].best for d in shards)
        flops = layers * model.layer_matmul_flops(sequences) + (model.head_flops(sequences) if stage == self.pp - 1 else 0.0)
        matrices = max(self.weight_bytes(stage) / memory, flops / self.rate(stage, sequences))
        cache = sequences * context * layers * model.kv_bytes_per_token_layer(self.problem.element_bytes)
        attention = max(cache / memory, layers * model.decode_attention_flops(sequences * context) / best)
        return Step((matrices + attention) / len(shards), *self.moved(stage, sequences))

    def step(self, sequences: float, context: float) -> Step:
        """A token for every sequence, and what the host adds: a gap, something for each sequence, and launching where that takes longer
        (on a device that is its own host: all of it)."""
        done, host = self.on_devices(sequences, context), self.problem.engine.rollout.host
        slow = self.fleet.slowest_host(d for stage in self.ranks for d in stage)
        launch = slow * sum(self.layers) * host.layer_s
        launch = launch if self.problem.engine.host_flops_per_s > 0 else max(0.0, launch - done.seconds)
        return done + Step(0.0, 0.0, 0.0, slow * (host.gap_s + host.sequence_s * sequences) + launch)

    def on_devices(self, sequences: float, context: float) -> Step:
        """A token for every sequence. With pp stages, pp groups of sequences are under way (of at least one sequence each, while there are
        as many): the slowest stage serves them all in turn, or the way of one group through all stages takes longer.
        """
        if self.pp == 1:
            return self.stage_step(0, sequences, context)
        group = max(sequences / self.pp, min(sequences, 1.0))
        groups = min(float(self.pp), max(sequences, 1.0))
        stages = [self.stage_step(j, group, context) for j in range(self.pp)]
        slowest, way = max(stages, key=lambda s: s.seconds).times(groups), sum(stages, start=NOTHING)
        return slowest if slowest.seconds > way.seconds else way

    def prefill(self, sequences: int, in_flight: int) -> float:
        """All prompts, in passes of the engine's size (0: the prompts of a full house at once), pipelined over the stages."""
        model, prompt, chunk = self.problem.task("rollout").model, self.problem.work.prompt_mean, self.problem.engine.rollout.prefill_tokens
        tokens = sequences * prompt
        at_once = min(tokens, float(chunk)) if chunk else in_flight * prompt
        passes = tokens / at_once
        once = []
        for j, shards in enumerate(self.ranks):
            flops = self.layers[j] * (model.layer_matmul_flops(tokens) + sequences * model.layer_attention_flops(prompt))
            if j == self.pp - 1:
                flops += model.head_flops(sequences)  # only the last token of a prompt needs it
            read = passes * self.weight_bytes(j) / len(shards) / self.fleet.slowest_memory(shards)
            work = max(flops / len(shards) / self.rate(j, at_once), read)
            whole, divided = model.pointwise_elements(fused=self.problem.engine.rollout.fused_operations)
            elements = self.layers[j] * tokens * (whole + divided / len(shards))
            work += elements * self.problem.element_bytes / self.fleet.slowest_memory(shards)
            once.append(work / passes + sum(self.moved(j, at_once)))
        return sum(once) + (passes - 1) * max(once)


def replica_terms(replica: Replica, sequences: int, in_flight: int) -> Terms:
    """Seconds of a replica for ``sequences`` responses with at most c at once, calibration aside.

    Continuous: the house is full for (n − c)·mean/c steps; then the last c drain. At token t of theirs c·S(t) are expected to run, and the
    step takes place with the probability 1 − (1 − S(t))^c that any does. What draining computes beyond mean-length steps at full house is
    the tail. Static: every batch of c runs at full width until its longest response ends, at half its length of context on average.
    """
    problem, response, c = replica.problem, replica.problem.job.response_tokens, min(in_flight, sequences)
    prompt, mean = problem.work.prompt_mean, problem.work.response_mean
    prefill, tail = replica.prefill(sequences, c), 0.0
    if not problem.engine.rollout.continuous_batching:
        longest = expected_longest(response, c)
        spent = replica.step(c, prompt + longest / 2).times(-(-sequences // c) * longest)
    else:
        house, drain = replica.step(c, prompt + mean_age(response)), NOTHING
        for t, weight in nodes(response.max):
            any_runs = 1.0 - (1.0 - survival(t, response)) ** c
            if any_runs > 0.0:
                drain += replica.step(c * survival(t, response) / any_runs, prompt + t).times(any_runs * weight)
        tail = max(0.0, drain.work - mean * house.work)
        spent = house.times((sequences - c) * mean / c) + drain
    return {"prefill": prefill, "decode": spent.work - tail, "tp": spent.tp, "pp": spent.pp, "host": spent.host, "tail": tail}


def rollout_terms(problem: Problem, fleet: Fleet, layout: Layout, in_flight: list[int]) -> Terms:
    """Of the slowest replica. With a group of sequences on every stage, rings and hops cross machines together."""
    crossings = tp_crossings(fleet, layout) + hop_crossings(fleet, layout)
    slowest: Terms = {}
    for i, ranks in enumerate(layout.ranks.tolist()):
        factor = max(problem.factors("rollout")[d] for shards in ranks for d in shards)
        terms = replica_terms(Replica(problem, fleet, layout.layers, ranks, crossings), layout.local[i], in_flight[i])
        terms = {name: factor * seconds for name, seconds in terms.items()}
        if sum(terms.values()) > sum(slowest.values()) * SLOWER:
            slowest = terms
    return slowest
