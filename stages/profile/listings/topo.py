"""``nvidia-smi topo -m``: how the GPUs of a machine are joined, and what that makes of the link between two of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from artifacts.catalog.gpus import Gpu
from artifacts.errors import InputError
from stages.profile import rates
from stages.profile.listings.listed import ListedLinks

NVLINK_GB_PER_S = {"Volta": 25.0, "Ampere": 25.0, "Hopper": 25.0, "Blackwell": 50.0}
"""One NVLink, one direction: second to fourth generation 25 GB/s, fifth 50 (NVIDIA's product pages)."""
_WORDS = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|PSB|NS|N/A")


def read_topo(text: str, *, where: str, machine: str) -> ListedLinks:
    """Raises :class:`InputError` where the matrix of the GPUs is not whole."""
    lines = [line.split() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]
    rows = {int(words[0][3:]): words[1:] for words in lines if words and re.fullmatch(r"GPU\d+", words[0]) and "X" in words}
    joined: dict[tuple[int, int], str] = {}
    for a, words in rows.items():
        if len(words) < len(rows) or not all(_WORDS.fullmatch(w) for w in words[:len(rows)]) or words[sorted(rows).index(a)] != "X":
            raise InputError(f"{where}: the row of GPU{a} is not whole", fix="give the output of nvidia-smi topo -m as it was printed")
        joined.update({(a, b): words[place] for place, b in enumerate(sorted(rows)) if a != b})
    if not rows:
        raise InputError(f"{where} has no matrix of GPUs", fix="give the output of nvidia-smi topo -m")
    return ListedLinks(machine=machine, joined=joined)


def inside_rate(links: ListedLinks, gpus: Sequence[Gpu]) -> tuple[float, float, str] | None:
    """(latency s, B/s, what it rests on) of the slowest kind of pair; None where there is one GPU or the rate is not known.

    A collective over all GPUs of the machine goes at the slowest pair's rate, so that one stands for the machine.
    """
    kinds = Counter(links.joined.values())
    if not kinds or not gpus:
        return None
    nvlinks = [int(kind[2:]) for kind in kinds if kind.startswith("NV")]
    if len(nvlinks) == len(kinds):
        per_link = [NVLINK_GB_PER_S.get(gpu.architecture) for gpu in gpus]
        if None in per_link:
            return None
        rate = min(nvlinks) * min(r for r in per_link if r is not None) * 1e9
        return rates.ASSUMED_FABRIC_LATENCY_S, rate * rates.ASSUMED_LINK, f"{min(nvlinks)} NVLinks"
    pcie = [gpu.pcie_gb_per_s for gpu in gpus]
    if None in pcie:
        return None
    slow = "/".join(sorted(kind for kind in kinds if not kind.startswith("NV")))
    rate = min(r for r in pcie if r is not None) * 1e9
    return rates.ASSUMED_PCIE_LATENCY_S, rate * rates.ASSUMED_LINK, f"PCIe ({slow})" + (", some pairs NVLink" if nvlinks else "")
