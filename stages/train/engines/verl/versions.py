"""The releases this engine was written against. It leans on pieces of theirs that are not public, so others are refused."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from artifacts.errors import RunnerUnavailable

PINNED = {"verl": "0.9.1", "megatron-core": "0.16.1", "mbridge": "0.15.1", "TransferQueue": "0.1.11"}
REPORTED = (*PINNED, "torch", "ray", "transformers", "reasoning-gym")


def found() -> dict[str, str]:
    """Distribution → version, of those that are installed."""
    versions = {}
    for name in REPORTED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def check() -> None:
    """Raise ``RunnerUnavailable`` naming every distribution that is missing or of another release."""
    have = found()
    wrong = [f"{name} {have[name]} is installed, {want} is needed" if name in have else f"{name} {want} is not installed"
             for name, want in PINNED.items() if have.get(name) != want]
    if wrong:
        raise RunnerUnavailable("the verl engine cannot start: " + "; ".join(wrong), fix="pip install 'hetrl[engine-cpu]'")
