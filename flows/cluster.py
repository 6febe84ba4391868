"""Which cluster a run is for: what the user typed, as the parameters of the profile stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from artifacts.base import read_text
from artifacts.errors import InputError
from flows import listings
from flows.lab.state import lab_cluster


def profile_parameters(cluster: str) -> dict[str, Any]:
    """``local`` (this machine), ``lab`` (the one that is up), ``ray:auto`` or ``ray://…`` (a live Ray cluster), or an inventory's path.

    A described cluster may also be a folder of listings (what nvidia-smi, SLURM or kubectl printed), or a YAML that names such files. The
    texts go into the parameters, so that the stage needs nothing but its request, and an edited file is a changed parameter.
    """
    if cluster == "local":
        return {"cluster": {"kind": "local"}}
    if cluster.startswith("ray:"):
        return {"cluster": {"kind": "ray", "address": "auto" if cluster == "ray:auto" else cluster}}
    if cluster == "lab":
        return {"cluster": lab_cluster()}
    if Path(cluster).is_dir():
        return {"cluster": listings.from_folder(Path(cluster))}
    if not Path(cluster).is_file():
        raise InputError(f"there is no cluster {cluster!r}",
                         fix="give local, lab, ray:auto, ray://host:port, or the path of an inventory (examples: infra/clusters/)")
    text = read_text(cluster)
    if named := listings.description_in(text):
        return {"cluster": listings.from_description(named, Path(cluster))}
    return {"cluster": {"kind": "inventory", "text": text, "where": Path(cluster).name}}


def check_runner(kind: str, runner: str) -> None:
    """Raise :class:`InputError` where stages run by ``runner`` cannot reach a cluster of this kind."""
    if kind == "lab" and runner == "docker":
        raise InputError("the lab's machines share this checkout and .hetrl/work with stages that run as processes, not with containers",
                         fix="leave out --runner docker (or say --runner process)")


def is_live(parameters: dict[str, Any]) -> bool:
    """Whether the cluster has to be measured anew at every run; a description says the same until it is edited."""
    return parameters["cluster"]["kind"] not in ("inventory", "scenario", "files")
