"""Terms that runs have and the kernel's price has not: prototypes, each to be deleted when the kernel prices it.

A term is seconds on top of ``price_plan``'s. Constants are counted from the operations, or published by somebody else than the sources
that are scored here; none is fitted to a row. Symbols as in the cost model: h hidden, f intermediate, q and kv query and KV width (heads ×
head size), a heads, S tokens of a sequence, w bytes an element, V vocabulary, H memory rate, F compute rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from artifacts.model_spec import ModelSpec
from artifacts.plan import Strategy
from artifacts.topology import Device
from stages.schedule.problem import Problem
from tests.benchmarks.published.facts import Run
from tests.benchmarks.published.scenario import Scenario

LAUNCH_S = 23e-3 / 28
"""Host time to launch the operations of a layer one by one: 23 ms a token in the 28 layers of Qwen2.5-7B under vLLM with enforce_eager on an
A800, where reading the weights takes 10 (vllm-project/vllm-omni issue 7960). A backward pass is counted as a forward one.
"""

SOFTMAX_FORWARD_BYTES = 30
SOFTMAX_BACKWARD_BYTES = 14
"""Memory traffic of one logit: to 32 bits (2 + 4), maximum (4), minus it (8), exponential (8), sum (4); gradient (8), to 16 bits (6)."""


def training_passes(problem: Problem) -> float:
    """Memory traffic of a training pass over that of a forward pass: backward reads and writes twice as much; recomputation adds one."""
    return 4.0 if problem.job.engine.recompute == "full" else 3.0


def layer_elements(model: ModelSpec, *, tokens: float, tp: int, run: Run) -> float:
    """Elements that the operations of a layer beside its matrix multiplications read and write for one token, forward, on a shard.

    Whole on every shard: two norms (read, write) and two residual additions (read twice, write), 10·h. Divided: the activation function
    of the MLP with its gate (3·f), the attention's input and output (2·q + 2·kv). Without fused attention the scores of each head are
    written, scaled and masked, made a softmax, dropped out and read again: 6.5 elements each, a·S a token. A Hugging Face model under FSDP
    runs each operation by itself: a norm goes to 32 bits and back (18·h), the gate is a pass of its own (5·f), rotary embeddings are a
    negation, a concatenation, two products and a sum (10·q + 10·kv).
    """
    q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    whole = (42.0 if run.fsdp else 10.0) * model.hidden / (tp if run.sequence_parallel else 1)
    divided = 2.0 * q + 2.0 * kv + (5.0 * model.intermediate + 10.0 * (q + kv) if run.fsdp else 3.0 * model.intermediate)
    return whole + (divided + (0.0 if run.flash else 6.5 * model.heads * tokens)) / tp


def extra_terms(scenario: Scenario, task: str, base: Mapping[str, float]) -> dict[str, float]:
    """Seconds by term that a training or inference task takes beside what the kernel prices. ``actor_log_prob``: the
    actor's forward pass, in micro-batches of the reference's. ``base``: the kernel's own terms.
    """
    strategy = scenario.plan.tasks["reference_inference" if task == "actor_log_prob" else task]  # type: ignore[index]
    training = task.endswith("_training")
    terms = {
        "activations": activations(scenario, strategy, training=training),
        "attention": unmasked(scenario, strategy, training=training),
    }
    if not task.startswith("critic"):
        terms["softmax"] = softmax(scenario, strategy, training=training)
    if scenario.run.fsdp:
        terms["gathers"] = fsdp(scenario, strategy, training=training)
    on_gpu = sum(terms.values()) + sum(s for name, s in base.items() if name not in ("dp", "optimizer", "offload"))
    terms["launches"] = launches(scenario, strategy, training=training, priced=on_gpu)
    return {name: s for name, s in terms.items() if s}


def activations(scenario: Scenario, strategy: Strategy, *, training: bool) -> float:
    problem, run, model = scenario.problem, scenario.run, scenario.job.model("actor")
    tokens = problem.work.sequence_tokens
    elements = layer_elements(model, tokens=tokens, tp=strategy.tp, run=run)
    each = elements * problem.element_bytes * tokens * strategy.micro_batch_sequences * (training_passes(problem) if training else 1.0)
    return pipelined(problem, strategy, [n * each / slowest(d, "memory") for n, d in _stages(problem, strategy)], training=training)


def unmasked(scenario: Scenario, strategy: Strategy, *, training: bool) -> float:
    """Without fused attention the masked half is computed too: as many FLOPs again as the causal half."""
    problem, model = scenario.problem, scenario.job.model("actor")
    if scenario.run.flash:
        return 0.0
    flops = model.layer_attention_flops(problem.work.sequence_tokens) * strategy.micro_batch_sequences / strategy.tp
    each = flops * (training_passes(problem) if training else 1.0)
    return pipelined(problem, strategy, [n * each / slowest(d, "compute") for n, d in _stages(problem, strategy)], training=training)


def softmax(scenario: Scenario, strategy: Strategy, *, training: bool) -> float:
    problem, model = scenario.problem, scenario.job.model("actor")
    each = SOFTMAX_FORWARD_BYTES + (SOFTMAX_BACKWARD_BYTES if training else 0)
    bytes_ = each * model.vocab / strategy.tp * problem.work.sequence_tokens * strategy.micro_batch_sequences
    _, last = _stages(problem, strategy)[-1]
    return pipelined(problem, strategy, [*[0.0] * (strategy.pp - 1), bytes_ / slowest(last, "memory")], training=training)


def fsdp(scenario: Scenario, strategy: Strategy, *, training: bool) -> float:
    """Weights gathered for each pass of each micro-batch, gradients of 32 bits scattered for each micro-batch.

    One of the scatters and gathers of an optimizer step is in the kernel's price.
    """
    problem, model = scenario.problem, scenario.job.model("actor")
    link = problem.topology.link(problem.topology.machines[0].name, problem.topology.machines[0].name)
    assert link is not None
    n, params = strategy.dp, float(model.params())
    gather = (n - 1) * (link.latency_s + params * problem.element_bytes / n / link.bandwidth_bytes_per_s)
    scatter = (n - 1) * (link.latency_s + params * problem.engine.gradient_bytes / n / link.bandwidth_bytes_per_s)
    count = micro_batches(problem, strategy, training=training)
    if not training:
        return count * gather
    passes = 3 if problem.job.engine.recompute == "full" else 2
    return problem.work.optimizer_steps * (count * (passes * gather + scatter) - gather - scatter)


def micro_batches(problem: Problem, strategy: Strategy, *, training: bool) -> int:
    """Micro-batches of one pipeline: of a mini-batch in training, of the batch in inference."""
    share = max(strategy.local_batch_sequences) // (problem.work.mini_batches if training else 1)
    return max(1, share // strategy.micro_batch_sequences)


def pipelined(problem: Problem, strategy: Strategy, stages: Sequence[float], *, training: bool) -> float:
    """Seconds that so much more on each stage of a micro-batch makes an iteration longer: Σ + (m − 1)·max, for every optimizer step."""
    rounds = problem.work.optimizer_steps if training else 1
    return rounds * (sum(stages) + (micro_batches(problem, strategy, training=training) - 1) * max(stages))


def slowest(devices: Sequence[Device], what: str) -> float:
    if what == "memory":
        return min(d.memory_bandwidth_bytes_per_s.value for d in devices)
    return min(d.achieved_flops_per_s.value for d in devices)


def _stages(problem: Problem, strategy: Strategy) -> list[tuple[int, list[Device]]]:
    """(layers, devices of all replicas) of each stage."""
    found = []
    for j, layers in enumerate(strategy.layers):
        names = [strategy.rank(i, j, k) for i in range(strategy.dp) for k in range(strategy.tp)]
        found.append((layers, [problem.topology.device(n) for n in names]))
    return found


def launches(scenario: Scenario, strategy: Strategy, *, training: bool, priced: float) -> float:
    """How much longer the host takes to launch all operations than the GPUs, priced so far, to run them."""
    passes = 1.0 if not training else 3.0 if scenario.job.engine.recompute == "full" else 2.0
    return max(0.0, pipelined(scenario.problem, strategy, [passes * n * LAUNCH_S for n in strategy.layers], training=training) - priced)
