"""Which stages a run covers."""

from __future__ import annotations

import pytest

from artifacts.errors import InputError
from artifacts.registry import DOCUMENTS
from flows.graph import FILE, MAKER, ORDER, STAGES, Selection


def test_every_input_is_made_by_the_job_or_an_earlier_stage() -> None:
    done = {"job"}
    for spec in STAGES:
        assert {MAKER[name] for name in spec.inputs} <= done
        done.add(spec.name)
    assert done == {"job", *ORDER}


def test_every_artifact_is_a_document_and_has_a_file() -> None:
    assert set(MAKER) <= set(DOCUMENTS)
    assert set(FILE) == set(MAKER)


@pytest.mark.parametrize(("options", "stages"), [
    ({}, ORDER),
    ({"from_stage": "schedule"}, ORDER[1:]),
    ({"until_stage": "schedule"}, ORDER[:2]),
    ({"from_stage": "deploy", "until_stage": "train"}, ("deploy", "train")),
    ({"only": "validate"}, ("validate",)),
])
def test_selections(options: dict[str, str], stages: tuple[str, ...]) -> None:
    assert Selection.of(**options).stages == stages  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "says"), [
    ({"only": "train", "from_stage": "schedule"}, "only cannot be combined"),
    ({"from_stage": "train", "until_stage": "schedule"}, "from train comes after until schedule"),
])
def test_selections_that_cannot_be(options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Selection.of(**options)  # type: ignore[arg-type]
