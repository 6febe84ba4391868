"""The stage end to end: ``python -m stages.validate`` on a folder store."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from artifacts.base import Document
from artifacts.calibration import Calibration
from artifacts.invocation import Outcome, StageRequest, parse_event
from artifacts.manifest import Producer, VersionRef
from artifacts.store import Store, open_store
from artifacts.throughput import Throughput
from artifacts.validation import Row, Validation
from tests.stages.validate.worked import DEPLOYMENT, ITERATIONS, JOB, PLAN, PREDICTION, TOPOLOGY, USED, throughput

ROOT = Path(__file__).parents[3]


class Case:
    """A store with the documents of one run, and the stage run on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = (folder / "store").as_uri()
        self.store: Store = open_store(self.url, pipeline="test")
        self.inputs = {"job": self.put("job", JOB), "topology": self.put("profile", TOPOLOGY), "deployment": self.put("deploy", DEPLOYMENT)}
        self.inputs |= dict.fromkeys(("plan", "prediction"), self.put("schedule", PLAN, PREDICTION))
        self.log(throughput())

    def put(self, stage: str, *documents: Document, version: str = "v1", files: dict[str, bytes] | None = None) -> VersionRef:
        writer = self.store.new_version(stage, version)
        for document in documents:
            writer.put_document(document)
        for name, data in (files or {}).items():
            writer.put_bytes(name, data)
        now = datetime.now(UTC)
        producer = Producer(hetrl="test", code_digest="test", started_at=now, finished_at=now)
        return writer.commit(inputs={}, context={}, parameters={}, summary={}, producer=producer).ref

    def log(self, log: Throughput, *, version: str = "v1", tail: str = "") -> None:
        self.inputs["throughput"] = self.put("train", version=version, files={"throughput.jsonl": (log.to_jsonl() + tail).encode()})

    def run(self, *, version: str = "out", context: list[VersionRef] | None = None, **parameters: Any) -> tuple[int, Outcome]:
        request = StageRequest(
            stage="validate",
            store=self.url,
            pipeline="test",
            version=version,
            inputs=self.inputs,
            context={"validation": context or []},
            parameters=parameters,
            workdir=str(self.folder / "work"),
        )
        path = self.folder / "request.json"
        path.write_text(request.to_json())
        done = subprocess.run(
            [sys.executable, "-m", "stages.validate", "--request", str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        outcome = parse_event(done.stdout.splitlines()[-1])
        assert isinstance(outcome, Outcome), done.stderr
        return done.returncode, outcome

    def made(self, version: str = "out") -> dict[str, bytes]:
        manifest = self.store.manifest(VersionRef(stage="validate", version=version))
        return {name: self.store.read_bytes(manifest.ref, name) for name in manifest.files}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_writes_validation_calibration_and_report(case: Case) -> None:
    status, outcome = case.run(bound=0.1)
    assert status == 0, outcome
    assert outcome.summary == {
        "verdict": "off",
        "iteration_error": -0.15,
        "median_abs_error": 0.1,
        "suspect": "rollout",
        "predicted_s": 8.5,
        "measured_s": 10.0,
        "calibrated": True,
        "errors": {"rollout": -0.3333, "reference_inference": 0.0, "actor_training": 0.2, "weight_update": 0.0},
    }
    made = case.made()
    assert set(made) == {"validation.json", "calibration.json", "report.html"}
    result = Validation.from_json(made["validation.json"], where="validation.json")
    assert (result.verdict, result.bound, result.plan, result.simulated) == ("off", 0.1, PLAN.identity(), False)
    assert Calibration.from_json(made["calibration.json"], where="calibration.json").factor(
        task="rollout", device_class="slow") == pytest.approx(1.5, rel=0.01)
    report = made["report.html"].decode()
    assert "The prediction is off: 8.50 s predicted, 10.00 s measured" in report
    assert "train@v1" in report

    status, _ = case.run(version="again", bound=0.1)
    assert status == 0
    assert case.made("again") == made


def test_trend_has_the_earlier_runs_oldest_first(case: Case) -> None:
    def earlier(version: str, error: float) -> VersionRef:
        row = Row(task="iteration", device_class="all", predicted_s=1.0 + error, measured_s=1.0, iterations=3, error=error)
        return case.put(
            "validate",
            Validation(plan="p", rows=[row], iteration=row, median_abs_error=abs(error), bound=0.35, verdict="ok"),
            version=version,
        )

    first, second = earlier("first", -0.3), earlier("second", 0.1)
    case.run(context=[second, first, VersionRef(stage="validate", version="gone")])
    trend = Validation.from_json(case.made()["validation.json"], where="").trend
    assert [(t.version, t.iteration_error, t.median_abs_error) for t in trend] == [("first", -0.3, 0.3), ("second", 0.1, 0.1)]


def test_a_log_cut_by_a_crash_counts_up_to_the_cut(case: Case) -> None:
    line = ITERATIONS[3].model_dump_json()
    case.log(throughput(ITERATIONS[:3]), version="cut", tail=line[: len(line) // 2])
    status, outcome = case.run()
    assert status == 0
    assert outcome.summary["measured_s"] == 9.5  # median of 9 and 10
    assert outcome.summary["calibrated"] is True


def test_one_counted_iteration_gives_no_calibration(case: Case) -> None:
    case.log(throughput(ITERATIONS[:2]), version="short")
    status, outcome = case.run()
    assert status == 0
    assert outcome.summary["calibrated"] is False
    made = case.made()
    assert set(made) == {"validation.json", "report.html"}
    assert "no calibration fitted" in json.loads(made["validation.json"])["notes"]


def test_composes_with_the_calibration_of_the_prediction(case: Case) -> None:
    calibration = case.put("validate", USED, version="c1")
    case.inputs |= {
        "calibration": calibration,
        "prediction": case.put("schedule", PREDICTION.model_copy(update={"calibration": "c1"}), version="v2"),
    }
    assert case.run()[0] == 0
    fitted = Calibration.from_json(case.made()["calibration.json"], where="")
    assert fitted.factor(task="rollout", device_class="fast") == pytest.approx(2.14, abs=0.01)  # see test_calibrate


@pytest.mark.parametrize(
    ("header", "parameters", "message"),
    [({"plan": "another"}, {}, "throughput: not of plan"), ({}, {"bound": -1}, "parameters of stage validate: bound")],
)
def test_input_errors_are_one_line_and_publish_nothing(
    case: Case, header: dict[str, Any], parameters: dict[str, Any], message: str
) -> None:
    case.log(throughput(**header), version="other")
    status, outcome = case.run(**parameters)
    assert (status, outcome.kind) == (2, "InputError")
    assert message in outcome.message
    assert case.store.find("validate", "out") is None


def test_an_empty_run_is_refused(case: Case) -> None:
    case.log(throughput([]), version="empty")
    status, outcome = case.run()
    assert (status, outcome.kind) == (2, "InputError")
    assert "no finished iteration" in outcome.message


@pytest.mark.parametrize("same_run", [True, False])
def test_agreement_with_the_run_it_was_calibrated_on_is_called_no_test(case: Case, same_run: bool) -> None:
    writer = case.store.new_version("validate", "earlier")
    writer.put_document(USED)
    now = datetime.now(UTC)
    fitted_on = case.inputs["throughput"] if same_run else VersionRef(stage="train", version="another")
    producer = Producer(hetrl="test", code_digest="test", started_at=now, finished_at=now)
    case.inputs["calibration"] = writer.commit(inputs={"throughput": fitted_on}, context={}, parameters={}, summary={}, producer=producer).ref
    status, outcome = case.run()
    assert status == 0, outcome
    notes = json.loads(case.made()["validation.json"])["notes"]
    assert any("no test of the prediction" in note for note in notes) == same_run
