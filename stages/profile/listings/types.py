"""Which GPU a scheduler's short name for it stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from artifacts.catalog.gpus import Gpu, find_gpu, gpu_by_name, gpus, nearest
from artifacts.errors import InputError


def gpu_of(word: str, *, features: Sequence[str], types: Mapping[str, str], where: str) -> Gpu:
    """The GPU called ``word`` (a100, nvidia_a100-sxm4-80gb, NVIDIA-L4, …). ``types``: what the person says words stand for.

    A word that several parts begin with is told apart by the node's ``features`` (80gb, sxm4, …). Raises :class:`InputError` naming the
    candidates where that does not do.
    """
    if word in types:
        return gpu_by_name(types[word], where=f"{where}: types.{word}")
    found = find_gpu(word) or find_gpu(f"nvidia {word}") or find_gpu(re.sub(r"^(nvidia|amd)[_ -]", "", word, flags=re.IGNORECASE))
    if found is not None:
        return found
    key = _key(word)
    candidates = [gpu for gpu in gpus().values() if key and _key(gpu.name).startswith(key) and not gpu.name.startswith("HetRL-")]
    for feature in map(_key, features):
        fewer = [gpu for gpu in candidates if feature and feature in _key(gpu.name) and feature != key]
        candidates = fewer or candidates
    if len(candidates) == 1:
        return candidates[0]
    names = ", ".join(gpu.name for gpu in candidates) or ", ".join(nearest(word)) or "none"
    raise InputError(f"{where}: which GPU {word[:60]!r} is cannot be told" + (f" (it could be {names})" if candidates else ""),
                     fix=f"give types: {{{word}: {candidates[0].name if candidates else 'a name of the catalogue'}}}")


def _key(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower().removeprefix("nvidia").removeprefix("tesla"))
