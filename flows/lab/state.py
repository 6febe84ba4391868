"""What is known of the lab that is up: a small file below ``.hetrl/lab``."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from artifacts.base import Strict
from artifacts.errors import InputError
from flows.lab.spec import LabSpec
from flows.services.state import home


class LabState(Strict):
    """``address``: of the lab's Ray (its GCS)."""

    spec: LabSpec
    address: str
    addresses: dict[str, str]


def lab_home() -> Path:
    return home() / "lab"


def lab_identity() -> str:
    """Tells the lab of this home from those of others on this machine."""
    return hashlib.sha256(str(home()).encode()).hexdigest()[:8]


def read_state() -> LabState | None:
    """The lab that was brought up, whether or not it still runs."""
    try:
        return LabState.model_validate_json((lab_home() / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None


def write_state(state: LabState) -> None:
    path = lab_home() / "state.json"
    path.with_suffix(".new").write_text(state.model_dump_json(indent=1), encoding="utf-8")
    path.with_suffix(".new").replace(path)


def lab_cluster() -> dict[str, str]:
    """The lab as the profile stage wants it named. Raises :class:`InputError` when none is up."""
    state = read_state()
    if state is None:
        raise InputError("no lab is up here", fix="type: sudo hetrl lab up infra/lab/two-regions.yaml")
    return {"kind": "lab", "address": state.address, "name": state.spec.name}
