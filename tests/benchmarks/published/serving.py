"""What a rollout waits for beside memory, FLOPs and all-reduces: the host between and during decode steps, activations. See ``terms``."""

from __future__ import annotations

from dataclasses import dataclass

from stages.schedule.cost.iteration import PlanPrice
from tests.benchmarks.published.scenario import Scenario
from tests.benchmarks.published.terms import layer_elements
from tests.stages.schedule.reference.fleet import Fleet
from tests.stages.schedule.reference.generation import Replica
from tests.stages.schedule.reference.lengths import mean_age, nodes, survival
from tests.stages.schedule.reference.tasks import tp_crossings


@dataclass(frozen=True)
class Host:
    """Host time of a decode step of c sequences, seconds: ``gap`` + c·``each`` while the GPU waits, and at least ``layer`` a layer to launch."""

    gap: float
    each: float
    layer: float


HOSTS = {
    "eager": Host(gap=4e-3, each=(20e-3 - 4e-3) / 200, layer=23e-3 / 28),
    "graphs": Host(gap=5.5e-3 - 256 * 12.7e-6, each=12.7e-6, layer=0.0),
    "runtime": Host(gap=0.0, each=0.0, layer=0.0),
}
"""``eager``, vLLM up to 0.6 with enforce_eager: the GPU waits 4 ms between steps of few sequences (vllm-project/vllm issue 6854) and 20 ms at
200 (issue 6801); 23 ms a token in the 28 layers of Qwen2.5-7B on an A800, where reading the weights takes 10 (vllm-project/vllm-omni issue
7960). ``graphs``, vLLM's V1 engine with CUDA graphs: 5 to 6 ms between steps of 256 sequences (issue 10634), 12.7 µs a sequence
(openfabric-systems/simllm pull request 204). ``runtime``, a compiled C++ runtime: none known.
"""


def rollout_terms(scenario: Scenario, price: PlanPrice) -> dict[str, float]:
    """Seconds by term beside what the kernel prices, of the first replica: published runs have equal ones."""
    problem, host, work = scenario.problem, HOSTS[scenario.run.serving], scenario.problem.work
    layout = next(group.layouts["rollout"] for group in price.groups if "rollout" in group.layouts)
    fleet = Fleet.of(problem)
    replica = Replica(problem, fleet, layout.layers, layout.ranks[0].tolist(), tp_crossings(fleet, layout))
    n, c, response = layout.local[0], layout.micro[0], problem.job.response_tokens
    floor = host.layer * sum(layout.layers)

    def waits(sequences: float, context: float) -> tuple[float, float]:
        step = replica.step(sequences, context)
        apart = one_after_the_other(replica, sequences, context) - step.work
        return max(0.0, floor - step.seconds - apart) + host.gap + host.each * sequences, apart

    spent = [((n - c) * work.response_mean / c, waits(c, work.prompt_mean + mean_age(response)))]
    for tokens, weight in nodes(response.max):
        any_runs = 1.0 - (1.0 - survival(tokens, response)) ** c
        if any_runs > 0.0:
            spent.append((any_runs * weight, waits(c * survival(tokens, response) / any_runs, work.prompt_mean + tokens)))
    elements = layer_elements(scenario.job.model("actor"), tokens=work.prompt_mean, tp=layout.tp, run=scenario.run)
    bytes_ = elements * problem.element_bytes * sum(layout.layers) * n * work.prompt_mean
    return {
        "host": sum(steps * wait for steps, (wait, _) in spent),
        "decode attention": sum(steps * apart for steps, (_, apart) in spent),
        "activations": bytes_ / fleet.slowest_memory(layout.ranks[0].ravel().tolist()),
    }


def one_after_the_other(replica: Replica, sequences: float, context: float) -> float:
    """Seconds of a decode step on one stage whose matrix multiplications (weights read or FLOPs computed, whichever takes longer) and whose
    attention (the cache read, or FLOPs) follow each other. The kernel takes the longer of all reading and all computing.
    """
    model, layers, shards = replica.problem.task("rollout").model, sum(replica.layers), replica.ranks[0]
    memory, tp = replica.fleet.slowest_memory(shards), len(shards)
    flops = layers * model.layer_matmul_flops(sequences) + model.head_flops(sequences)
    cache = sequences * context * layers * model.kv_bytes_per_token_layer(replica.problem.element_bytes)
    best = min(replica.fleet.curves[replica.fleet.device_class[d]].best for d in shards)
    attention = max(cache / memory, layers * model.decode_attention_flops(sequences * context) / best)
    return max(replica.weight_bytes(0) / memory, flops / replica.rate(0, sequences)) / tp + attention / tp
