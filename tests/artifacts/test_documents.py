"""Every document: round trip, identity, and refusals that say what to do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.base import Document, digest
from artifacts.errors import InputError
from artifacts.plan import Plan
from artifacts.registry import DOCUMENTS
from artifacts.throughput import Throughput
from tests.artifacts import samples

ALL = samples.documents()


def test_there_is_a_sample_of_every_document() -> None:
    assert {type(d) for d in ALL} == set(DOCUMENTS.values())


@pytest.mark.parametrize("document", ALL, ids=lambda d: d.artifact)
def test_round_trip(document: Document) -> None:
    if isinstance(document, Throughput):
        assert Throughput.from_jsonl(document.to_jsonl(), where="log") == document
        return
    again = type(document).from_json(document.to_json(), where="text")
    assert again == document
    assert again.identity() == document.identity()


@pytest.mark.parametrize("document", ALL, ids=lambda d: d.artifact)
def test_unknown_key_is_refused_by_name(document: Document) -> None:
    data = json.loads(document.to_json()) | {"surprise": 1}
    with pytest.raises(InputError, match="surprise: unknown key; known here: .*schema_version") as raised:
        type(document).parse(data, where="f.json")
    assert raised.value.line.startswith("InputError: f.json: ")
    assert "\n" not in raised.value.line


@pytest.mark.parametrize("document", ALL, ids=lambda d: d.artifact)
def test_schema_names_every_field(document: Document) -> None:
    schema = type(document).model_json_schema()
    assert set(schema["properties"]) == set(type(document).model_fields)


def test_identity_leaves_out_what_is_volatile_and_nothing_else() -> None:
    base = samples.plan()
    assert base.model_copy(update={"reasons": ["other words"]}).identity() == base.identity()
    reworded = base.groups[0].model_copy(update={"reason": "other words"})
    assert base.model_copy(update={"groups": [reworded]}).identity() == base.identity()
    idle = base.model_copy(update={"idle_devices": {"d9": "too far"}})
    assert idle.identity() != base.identity()
    assert base.model_copy(update={"idle_devices": {"d9": "too slow"}}).identity() == idle.identity()
    assert base.model_copy(update={"topology_fingerprint": "other"}).identity() != base.identity()


def test_digest_never_guesses() -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        digest({"x": float("nan")})
    with pytest.raises(TypeError):
        digest({"x": object()})
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
                           lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4), max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(sorted(DOCUMENTS)), value=json_values)
def test_arbitrary_json_is_a_clear_refusal(kind: str, value: object) -> None:
    with pytest.raises(InputError):
        DOCUMENTS[kind].from_json(json.dumps(value), where="x")


@settings(max_examples=150, deadline=None)
@given(document=st.sampled_from([d for d in ALL if not isinstance(d, Throughput)]), data=st.data())
def test_a_document_with_one_field_replaced_is_read_or_refused(document: Document, data: st.DataObject) -> None:
    body = json.loads(document.to_json())
    field = data.draw(st.sampled_from(sorted(body)))
    body[field] = data.draw(json_values)
    try:
        read = type(document).from_json(json.dumps(body), where="x")
    except InputError as error:
        assert error.message.startswith("x")
    else:
        assert type(document).from_json(read.to_json(), where="y") == read


@settings(max_examples=100, deadline=None)
@given(plan=samples.plans())
def test_any_consistent_plan_round_trips(plan: Plan) -> None:
    assert Plan.from_json(plan.to_json(), where="x") == plan


@pytest.mark.parametrize(("change", "says"), [
    ({"ranks": ["m0.0"]}, "1 ranks for dp 1 × pp 2"),
    ({"ranks": ["m0.0", "m0.0"]}, "one rank a device"),
    ({"layers": [4, 0]}, "at least one layer"),
    ({"local_batch_sequences": [16, 16]}, "must name 1 shares"),
])
def test_a_layout_that_cannot_be_is_refused(change: dict[str, object], says: str) -> None:
    body = json.loads(samples.plan().to_json())
    body["tasks"]["actor_training"] |= change
    with pytest.raises(InputError, match=says):
        Plan.parse(body, where="plan.json")


def test_truncated_json_says_so() -> None:
    with pytest.raises(InputError, match=r"plan.json is not JSON.*"):
        Plan.from_json(samples.plan().to_json()[:-20], where="plan.json")


def test_a_log_cut_off_by_a_crash_keeps_its_whole_lines() -> None:
    text = samples.throughput().to_jsonl()
    assert len(Throughput.from_jsonl(text[:-5], where="log").iterations) == 1
    with pytest.raises(InputError, match="line 2 is not an iteration"):
        Throughput.from_jsonl(text.replace('"step":1', '"step":"one"'), where="log")
    with pytest.raises(InputError, match="empty"):
        Throughput.from_jsonl("", where="log")


def test_rates_are_derived_from_what_was_counted() -> None:
    first = samples.throughput().iterations[0]
    assert first.samples_per_s == 32 / 3.0
    assert first.tokens_per_s == 300.0
