"""Twenty mixed planning problems of at most 24 devices: what the solvers are measured against the exact optimum on.

Drawn by seed and so the same everywhere: PPO and GRPO, synchronous and asynchronous, 4B to 14B with smaller critic or reward models, one to
four kinds of machines in one to three regions. A draw whose fleet has too little memory for its job is drawn again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import yaml

from artifacts.catalog import models
from artifacts.job import Batch, Engine, Job, Lengths
from artifacts.topology import Topology
from stages.profile.basis import anchored
from stages.profile.inventory import read_inventory

COUNT = 20
MOST_DEVICES = 24
GPUS = {"A100-SXM4-80GB": 80, "H100-SXM5-80GB": 80, "L40S-48GB": 48, "RTX-A6000-48GB": 48, "A100-SXM4-40GB": 40, "L4-24GB": 24}
"""Kinds by their memory, GiB (catalogue)."""
REGIONS = ("virginia", "ohio", "ireland")
MODELS = ("Qwen3-4B", "Qwen3-8B", "Qwen3-14B")
SMALLER = {"Qwen3-4B": "Qwen3-1.7B", "Qwen3-8B": "Qwen3-4B", "Qwen3-14B": "Qwen3-8B"}
STATE_BYTES = 18
"""Bytes of a trained parameter with gradient and optimizer state."""
ROOM = 1.7
"""Memory of the fleet over that of all roles' states: below it few plans fit or none."""


@dataclass(frozen=True)
class Instance:
    name: str
    job: Job
    topology: Topology


def instances() -> list[Instance]:
    """All of them, in order."""
    return [_instance(number) for number in range(COUNT)]


def _instance(number: int) -> Instance:
    """Axes that must all occur follow from the number; sizes and kinds are drawn."""
    rng = random.Random(f"instance {number}")
    algorithm, mode = ("ppo", "grpo")[number % 2], ("sync", "async")[number // 2 % 2]
    kinds, regions = 1 + number // 4 % 4, 1 + number % 3
    actor = MODELS[number // 3 % 3]
    roles = _roles(algorithm, actor, rng)
    reward = "model" if "reward" in roles else "rule"
    while True:
        machines = _machines(rng, kinds=kinds, regions=regions)
        have = sum(GPUS[gpu] * count for gpu, count, _ in machines)
        trained = [m for role, m in roles.items() if role in ("actor", "critic")]
        need = sum(models()[m].params() for m in trained) * STATE_BYTES + sum(models()[m].params() * 2 for m in roles.values())
        if have * 2**30 >= ROOM * need:
            break
    name = f"i{number:02d}-{algorithm}-{mode}-{actor.removeprefix('Qwen3-').lower()}-{sum(c for _, c, _ in machines)}gpu"
    job = Job(
        name=name,
        algorithm=algorithm,  # type: ignore[arg-type]
        mode=mode,  # type: ignore[arg-type]
        models={role: models()[m] for role, m in roles.items()},  # type: ignore[misc]
        reward=reward,  # type: ignore[arg-type]
        batch=Batch(prompts=rng.choice((48, 96, 192)), responses_per_prompt=8, mini_batch_prompts=48, micro_batch_sequences=4),
        prompt_tokens=Lengths(mean=512, max=1024),
        response_tokens=Lengths(mean=rng.choice((512, 1024)), max=1024),
        engine=Engine(recompute="full"),
    )
    return Instance(name, job, _topology(name, machines))


def _roles(algorithm: str, actor: str, rng: random.Random) -> dict[str, str]:
    roles = {"actor": actor}
    if algorithm == "ppo":
        roles["critic"] = rng.choice((actor, SMALLER[actor]))
    if rng.random() < 0.3:
        roles["reward"] = SMALLER[actor]
    return roles


def _machines(rng: random.Random, *, kinds: int, regions: int) -> list[tuple[str, int, str]]:
    """(GPU, how many, region) of each machine: as many kinds and regions as asked, at most four machines."""
    chosen = rng.sample(sorted(GPUS), kinds)
    count = max(kinds, regions, rng.randint(1, 4))
    gpus = [*chosen, *(rng.choice(chosen) for _ in range(count - kinds))]
    places = [*REGIONS[:regions], *(rng.choice(REGIONS[:regions]) for _ in range(count - regions))]
    rng.shuffle(places)
    sizes = [rng.choice((4, 8)) for _ in range(count)]
    while sum(sizes) > MOST_DEVICES:
        sizes[sizes.index(8)] = 4
    return list(zip(gpus, sizes, places, strict=True))


def _topology(name: str, machines: list[tuple[str, int, str]]) -> Topology:
    """Latencies between regions: half the round trips of the shipped 1,024-GPU fleet; bandwidths are made up."""
    inventory = {
        "name": name,
        "machines": [
            {"name": f"m{i}", "region": region, "gpus": [{"gpu": gpu, "count": count}], "host_memory_gib": 1024, "cpus": 96}
            for i, (gpu, count, region) in enumerate(machines)
        ],
        "links": {
            "same_zone": {"latency_ms": 0.05, "bandwidth_gbit_per_s": 100},
            "regions": [
                {"between": ["virginia", "ohio"], "latency_ms": 6.25, "bandwidth_gbit_per_s": 5},
                {"between": ["virginia", "ireland"], "latency_ms": 34.75, "bandwidth_gbit_per_s": 1.58},
                {"between": ["ohio", "ireland"], "latency_ms": 39.5, "bandwidth_gbit_per_s": 1.39},
            ],
        },
    }
    here = {region for _, _, region in machines}
    links = inventory["links"]
    assert isinstance(links, dict)
    links["regions"] = [pair for pair in links["regions"] if set(pair["between"]) <= here]
    return anchored(read_inventory(yaml.safe_dump(inventory), where=name), [])
