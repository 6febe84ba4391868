"""Which rows are scored: rules, applied in order; the first that a row breaks is the reason it is left out."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.benchmarks.published.facts import known_models, run_of
from tests.benchmarks.published.rows import Row, published_rows

KINDS = {
    "iteration": ("training iteration", "iteration"),
    "gen": ("RL phase", "rollout"),
    "old_log_prob": ("RL phase", "inference"),
    "ref_log_prob": ("RL phase", "inference"),
    "values": ("RL phase", "inference"),
    "update_critic": ("RL phase", "training"),
    "update_actor": ("RL phase", "training"),
    "step": ("RL phase", "step"),
    "step_throughput": ("RL phase", "step"),
    "generation_throughput": ("decode", "generation"),
    "first_token_latency": ("decode", "prefill"),
}
"""Phase as printed → (what the bars speak of, phase that a factor is fitted for)."""

LARGEST_MESSAGE = 2**28
SOURCES = {
    "VIA-Research/vTrain": "vTrain",
    "eth-easl/sailor": "Sailor",
    "yushengsu-thu": "verl log, MI300X",
    "diqiuzhuanzhuan": "verl logs, verldata",
    "eric-haibin-lin": "verl logs, verl-data",
    "volcengine/verl": "verl documentation",
    "rocm-blogs": "ROCm blog, verl",
    "NVIDIA-NeMo/RL": "NeMo RL",
    "OpenRLHF": "OpenRLHF",
    "DeepSpeedExamples": "DeepSpeed-Chat",
    "AReaL": "AReaL",
    "lmsys": "Miles",
    "HexiScale": "HexiScale",
    "TensorRT-LLM": "TensorRT-LLM",
    "ai-dynamo/aiconfigurator": "aiconfigurator",
}


def source_name(row: Row) -> str:
    return next(name for part, name in SOURCES.items() if part in row.source)


def kind_of(row: Row) -> tuple[str, str]:
    """(what the bars speak of, phase); single operators are shown, no bar speaks of them."""
    if row.phase in KINDS:
        return KINDS[row.phase]
    return ("operator", "all-reduce" if row.algorithm.startswith("all_reduce") else "decode attention")


def gpu_unstated(row: Row) -> str | None:
    return "GPU not stated" if "unstated" in row.gpu or not row.gpu else None


def mixture_of_experts(row: Row) -> str | None:
    return "mixture of experts, which is not modelled" if re.search(r"-A\d+B|DeepSeek-V3", row.model) else None


def eight_bit(row: Row) -> str | None:
    return "8-bit arithmetic, which is not modelled" if "FP8" in row.notes + row.unit + row.model else None


def degrees_unstated(row: Row) -> str | None:
    return "parallel degrees not stated" if row.tp is None or row.pp is None or row.n_gpus is None else None


def ratio_to_a_peak(row: Row) -> str | None:
    return "ratio to a peak; the time of the same run is scored" if row.unit == "fraction" else None


def second_reading(row: Row) -> str | None:
    """A rate of a run whose time is a row of its own is no second measurement."""
    if row.phase != "step_throughput":
        return None
    same = [r for r in published_rows() if r.phase == "step" and r.source == row.source and r.text == row.text]
    return "the step of the same run, as a rate; the time is scored" if same else None


def lengths_unknown(row: Row) -> str | None:
    return (
        "mean lengths known neither from the row nor from a log of the run"
        if "configured maxima" in row.notes and run_of(row) is None
        else None
    )


def batch_unstated(row: Row) -> str | None:
    return "batch not stated" if kind_of(row)[0] == "decode" and row.prompts is None else None


def circular(row: Row) -> str | None:
    if "GEMM" in row.algorithm:
        return "the compute and memory rates of the catalogue are medians of the table this row is from"
    if row.phase == f"message_size {LARGEST_MESSAGE}":
        return "the link rates of the catalogue are this row"
    return None


def doubted(row: Row) -> str | None:
    return "faster than the memory can be read, as the row's own note says" if "suspect" in row.notes else None


def run_unknown(row: Row) -> str | None:
    known = run_of(row) is not None and (kind_of(row)[0] == "operator" or row.model in known_models())
    return None if known else "how it was run is not known"


RULES: tuple[Callable[[Row], str | None], ...] = (
    gpu_unstated,
    mixture_of_experts,
    eight_bit,
    degrees_unstated,
    ratio_to_a_peak,
    second_reading,
    lengths_unknown,
    batch_unstated,
    circular,
    doubted,
    run_unknown,
)


def reason_left_out(row: Row) -> str | None:
    """Why a row is not scored; None: it is."""
    return next((reason for rule in RULES if (reason := rule(row)) is not None), None)


def scored_rows() -> list[Row]:
    return [row for row in published_rows() if reason_left_out(row) is None]
