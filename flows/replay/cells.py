"""A cell of an experiment: one solver's plan for one job on one fleet, played by the simulator."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from artifacts.base import digest
from artifacts.catalog import models
from artifacts.job import Algorithm, Batch, Dataset, Engine, Job, Lengths

Size = Literal["4B", "8B", "14B"]
Mode = Literal["sync", "async"]
PROMPTS, RESPONSES, TOKENS = 384, 8, 1024
STEADY = 2
"""Asynchronous iterations played: the first fills the pipeline of batches and is not counted; with equal lengths all others are alike."""


@dataclass(frozen=True)
class Workload:
    """A published job: all roles of one size, 1,024 + 1,024 tokens, four optimizer steps an iteration, everything recomputed."""

    size: Size
    algorithm: Algorithm
    mode: Mode = "sync"
    prompts: int = PROMPTS

    def __str__(self) -> str:
        batch = "" if self.prompts == PROMPTS else f", {self.prompts * RESPONSES:,} sequences"
        return f"{self.size} {self.algorithm.upper()} {self.mode}{batch}"

    def job(self) -> Job:
        return Job(
            name=f"qwen3-{self.size.lower()}-{self.algorithm}",
            algorithm=self.algorithm,
            mode=self.mode,
            models={"actor": models()[f"Qwen3-{self.size}"]},
            dataset=Dataset(task="gsm_symbolic", size=4096),
            batch=Batch(
                prompts=self.prompts, responses_per_prompt=RESPONSES, mini_batch_prompts=self.prompts // 4, micro_batch_sequences=4
            ),
            prompt_tokens=Lengths(mean=TOKENS, max=TOKENS),
            response_tokens=Lengths(mean=TOKENS, max=TOKENS),
            engine=Engine(recompute="full"),
            iterations=1 if self.mode == "sync" else STEADY,
        )


@dataclass(frozen=True)
class Cell:
    """``evaluations``: the search's budget. ``balanced`` false: equal layers and batches. ``played`` false: the plan is priced only."""

    fleet: str
    workload: Workload
    solver: str
    evaluations: int
    balanced: bool = True
    played: bool = True
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.fleet}, {self.workload}, {self.solver}" + ("" if self.balanced else " without balancing")

    @property
    def weight(self) -> float:
        """How long it takes in proportion to others, roughly: two starts of a process, the search, the play."""
        search = {"auto": 5e-5, "verl": 4e-5, "streamrl": 5e-5, "sha-ea": 5e-4, "deap": 5e-4}
        played = self.workload.prompts / PROMPTS * (2.0 if self.workload.mode == "async" else 1.0) * 4.0 + 3.0 if self.played else 0.0
        return 4.0 + search.get(self.solver, 1e-4) * (0 if self.solver == "exact" else self.evaluations) + played

    def schedule_parameters(self) -> dict[str, Any]:
        without = [] if self.balanced else ["balancing"]
        return {"solver": self.solver, "evaluations": self.evaluations, "seed": self.seed, "without": without}

    def key(self, fleet: dict[str, Any], code: dict[str, str]) -> str:
        """Digest of all that the result depends on: the cell, the fleet's description, the code of the stages it runs through."""
        return digest({"cell": asdict(self), "job": self.workload.job().identity(), "fleet": fleet, "code": code})
