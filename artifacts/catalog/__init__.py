"""Facts that ship with HetRL, as data files: models here, GPUs in ``gpus.yaml`` (loaded by :mod:`artifacts.catalog.gpus`)."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import yaml

from artifacts.errors import InputError
from artifacts.model_spec import ModelSpec


def load_yaml(name: str) -> dict[str, dict[str, object]]:
    """A data file of this package, decoded."""
    data = yaml.safe_load(files(__package__).joinpath(name).read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise TypeError(f"catalog file {name} does not hold a mapping")
    return data


@cache
def models() -> dict[str, ModelSpec]:
    return {name: ModelSpec.model_validate({"name": name, **fields}) for name, fields in load_yaml("models.yaml").items()}


def model_by_name(name: str, *, where: str) -> ModelSpec:
    """The catalog's model of that name, or an ``InputError`` naming those there are."""
    try:
        return models()[name]
    except KeyError:
        experts = re.search(r"-A\d+(\.\d+)?B|x\d+B|MoE|Mixtral|DeepSeek-V[23]", name)
        why = "is a mixture of experts, which is not modelled" if experts else "is not in the catalog"
        raise InputError(f"{where}: model {name[:60]!r} {why}", fix="use one of " + ", ".join(models())) from None
