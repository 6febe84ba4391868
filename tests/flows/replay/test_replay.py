"""The replay: a tiny cell through the real stages, resumed; which cells there are; the page of made-up figures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from artifacts.errors import InputError
from artifacts.job import load_job
from artifacts.views.svg import Svg
from flows.launch import make_runner
from flows.replay import page as pages
from flows.replay import pictures
from flows.replay.cells import Cell, Workload
from flows.replay.compare import end_to_end, lost_in
from flows.replay.drive import Step, replay
from flows.replay.experiments import EXPERIMENTS, Replay, chosen
from flows.replay.fleets import SETTINGS
from flows.replay.play import Player
from flows.replay.published import END_TO_END, Range
from flows.replay.results import Result, Results
from tests.infra.docs.terminal import typed

ROOT = Path(__file__).parents[3]
TINY = Cell("12 GPUs, one region", Workload("4B", "grpo", "sync", 48), "auto", 300)


def test_a_cell_is_played_kept_and_not_played_again(tmp_path: Path) -> None:
    """The stages as processes. Known cells are counted, and a line cut off by a crash is played again."""
    told: list[Step] = []
    player = Player(make_runner("process"))
    results = Results(tmp_path / "results.jsonl")
    unbalanced = replace(TINY, balanced=False, played=False)
    [first, priced] = replay([TINY, unbalanced, TINY], results=results, player=player, parallel=2, tell=told.append).values()
    assert [s.known for s in told] == [False, False] and told[-1].done == told[-1].total == 2 and told[0].left_s
    assert first.simulated_s and first.predicted_s and first.plan and first.by_task.keys() >= {"rollout", "actor_training", "weight_update"}
    assert first.evaluations >= 300 and first.cpu_s > 0 and first.trajectory[-1][1] == pytest.approx(first.predicted_s)
    assert priced.predicted_s and priced.simulated_s is None and priced.key != first.key

    lines = results.path.read_text().splitlines()
    results.path.write_text("\n".join([next(line for line in lines if first.key in line), next(line for line in lines if priced.key in line)[:50]]))
    again = Results(results.path)
    assert list(again.known) == [first.key]
    told.clear()

    class OnlyOnce(Player):
        def play(self, cell: Cell) -> Result:
            assert cell == unbalanced, "a known cell was played again"
            return priced

    assert replay([TINY, unbalanced], results=again, player=OnlyOnce(make_runner("process")), parallel=1, tell=told.append) == {TINY: first, unbalanced: priced}
    assert [(s.cell, s.known) for s in told] == [(TINY, True), (unbalanced, False)]
    assert Results(results.path).known == {first.key: first, priced.key: priced}


def test_a_cell_without_a_plan_is_a_result_and_any_other_failure_names_its_cell(tmp_path: Path) -> None:
    class Failing(Player):
        def play(self, cell: Cell) -> Result:
            raise InputError("the library is not there", fix="install it")

    with pytest.raises(InputError, match="12 GPUs, one region, 4B GRPO sync, 384 sequences, auto: the library is not there"):
        replay([TINY], results=Results(tmp_path / "r.jsonl"), player=Failing(make_runner("process")), parallel=1, tell=lambda step: None)


def test_a_key_knows_the_code_the_fleet_and_the_budget() -> None:
    code = {"schedule": "a"}
    same = TINY.key({"x": 1}, code)
    assert same == TINY.key({"x": 1}, dict(code))
    assert len({same, TINY.key({"x": 2}, code), TINY.key({"x": 1}, {"schedule": "b"}), replace(TINY, evaluations=301).key({"x": 1}, code)}) == 4


@pytest.mark.parametrize("size", ["4B", "8B", "14B"])
@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_the_jobs_are_the_shipped_ones(size: str, algorithm: str) -> None:
    shipped = load_job(str(ROOT / f"infra/jobs/qwen3-{size.lower()}-{algorithm}.yaml"))
    mine = Workload(size, algorithm).job()  # type: ignore[arg-type]
    assert mine == shipped.model_copy(update={"iterations": 1})


@pytest.mark.parametrize("quick", [True, False])
def test_every_experiment_has_cells_and_quick_has_few(quick: bool) -> None:
    whole = chosen([], quick=quick)
    assert whole.experiments == EXPERIMENTS
    for name in EXPERIMENTS:
        assert chosen([name], quick=quick).cells()
    cells = whole.cells()
    assert len(cells) == len(set(cells)) and {c.fleet for c in cells} >= set(SETTINGS)
    assert (len(cells) < 40) if quick else (len(cells) > 4 * 3 * 2 * 5)


def test_an_experiment_that_is_not_there() -> None:
    with pytest.raises(InputError, match="no experiment 'all'"):
        chosen(["all"], quick=True)


def made_up(cells: list[Cell]) -> dict[Cell, Result]:
    """HetRL's plans take 100 s, the baselines' 200 s, 90 s of which go into communication between replicas."""
    found = {}
    for cell in cells:
        slow = cell.solver != "auto"
        found[cell] = Result(
            key=str(cell), cell=str(cell), predicted_s=190.0 if slow else 99.0, simulated_s=(200.0 if slow else 100.0) if cell.played else None,
            by_task={"rollout": 50.0, "actor_training": 150.0 if slow else 50.0}, terms={"actor_training": {"compute": 40.0, "dp": 90.0}},
            plan=["24 × HetRL-A100: rollout 24×1×1"], evaluations=1000, cpu_s=4.0, trajectory=[(10, 500.0), (1000, 190.0 if slow else 99.0)])
    return found


def test_ratios_and_where_the_slower_plan_loses() -> None:
    run = Replay(("end-to-end",), quick=True)
    found = made_up(run.cells())
    ratios = end_to_end(run, found)
    assert len(ratios) == 12 and {r.value for r in ratios} == {2.0}
    assert [r.published.place(2.0) for r in ratios if r.published and r.setting == "single-region"] == ["inside", "above"]
    assert lost_in(ratios[0].ours, ratios[0].theirs) == "actor training +100 s, mostly dp"
    assert lost_in(ratios[0].theirs, ratios[0].ours) == "actor training −100 s, mostly dp"
    none = ratios[0].theirs.model_copy(update={"simulated_s": None, "why": "nothing fits"})
    assert replace(ratios[0], theirs=none).value is None and lost_in(ratios[0].ours, none) == "nothing fits"


def test_published_ranges_are_whole() -> None:
    assert {s for s, *_ in END_TO_END} == set(SETTINGS) and all(r.low < r.high for r in END_TO_END.values())
    assert (Range(1.0, 2.0).place(0.9), Range(1.0, 2.0).place(2.1), Range(1.0, 2.0).place(2.0)) == ("below", "above", "inside")


@pytest.mark.parametrize("quick", [True, False])
def test_the_page_has_a_section_an_experiment_and_keeps_what_was_written_by_hand(tmp_path: Path, quick: bool) -> None:
    run = chosen([], quick=quick)
    found = made_up(run.cells())
    page = tmp_path / "docs/replay.md"
    page.parent.mkdir()
    page.write_text(f"# Title\n\nBy hand.\n\n{pages.BEGIN}\nold\n{pages.END}\n\nAfter.\n")
    written = pages.write(run, found, page=page, pictures_in=tmp_path / "pictures")
    text = page.read_text()
    assert text.startswith("# Title\n\nBy hand.") and text.endswith("After.\n") and "old" not in text
    for name in run.experiments:
        assert f"## {pages.SECTIONS[name][0]}" in text, name
    assert "| single-region | 8B GRPO sync | verl | 100.0 | 200.0 | **2.00** | 1.51–2.05 | inside |" in text
    linked = re.findall(r"\]\((\.\./pictures/[a-z-]+\.svg)\)", text)
    assert len(linked) == 3 and all((page.parent / link).read_text().startswith("<svg xmlns=") for link in linked) and len(written) == 4
    pages.write(run, found, page=page, pictures_in=tmp_path / "pictures")
    assert page.read_text() == text


def test_a_page_without_marks_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    run = Replay(("end-to-end",), quick=True)
    with pytest.raises(InputError, match="no page of a replay"):
        pages.write(run, made_up(run.cells()), page=tmp_path / "README.md", pictures_in=tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize("quick", [True, False])
def test_a_page_of_some_cells_has_tables_of_those(tmp_path: Path, quick: bool) -> None:
    run = chosen([], quick=quick)
    for some in (run.cells()[:1], run.cells()[::3], run.cells()[1::2]):
        pages.write(run, made_up(some), page=tmp_path / "replay.md", pictures_in=tmp_path)
        assert f"{len(some)} of {len(run.cells())} cells" in (tmp_path / "replay.md").read_text()


def test_commands_on_results_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they play is tested above; here all cells are known from before, so that nothing is left to play."""
    monkeypatch.chdir(tmp_path)
    player, results = Player(make_runner("process")), Results(tmp_path / ".hetrl/replay/results.jsonl")
    for cell, result in made_up(list({*chosen([], quick=False).cells(), *chosen([], quick=True).cells()})).items():
        results.add(result.model_copy(update={"key": player.key(cell)}))
    (tmp_path / "infra/docs").mkdir(parents=True)
    (tmp_path / "infra/docs/replay.md").write_text(f"By hand.\n{pages.BEGIN}\n{pages.END}\n")
    for command in ("hetrl replay --quick", "hetrl replay", "hetrl replay --only end-to-end --only search", "hetrl replay --kept",
                    "hetrl replay --page infra/docs/replay.md --pictures infra/pictures"):
        told = json.loads(typed(command, "--json").splitlines()[-1])
        assert told["played"] == 0 and told["cells"] > 0
    assert "## End to end" in (tmp_path / ".hetrl/replay/replay.md").read_text()
    assert (tmp_path / "infra/docs/replay.md").read_text().startswith("By hand.") and list((tmp_path / "infra/pictures").glob("*.svg"))


def test_pictures_of_nothing() -> None:
    run = chosen([], quick=True)
    assert [make(run, {}) for make in (pictures.ratios_picture, pictures.search_picture, pictures.agreement_picture)] == [None] * 3
    assert isinstance(pictures.ratios_picture(run, made_up(run.cells())), Svg)


def test_simulate_on_files(tmp_path: Path) -> None:
    """``hetrl simulate`` as a person types it, on the plan of a described machine; and what it says to a plan of another job."""
    hetrl = [sys.executable, "-m", "flows.cli.main"]
    env = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(ROOT)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*hetrl, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=540, check=False)

    job = str(ROOT / "infra/jobs/qwen3-4b-grpo.yaml")
    small = ("--job", job, "--set", "batch.prompts=16", "--set", "batch.mini_batch_prompts=16")
    assert run("profile", "--cluster", str(ROOT / "infra/clusters/workstation-pair.yaml"), "--out", "made").returncode == 0
    planned = run("schedule", *small, "--topology", "made/topology.json", "--evaluations", "300", "--set", "models.actor=Qwen3-0.6B", "--out", "made")
    assert planned.returncode == 0, planned.stderr
    files = ("--topology", "made/topology.json", "--plan", "made/plan.json")
    done = run("simulate", *small, "--set", "models.actor=Qwen3-0.6B", *files, "--trace", "made/t/trace.json", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["iterations"] == 4 and found["throughput_samples_per_s"] == pytest.approx(128 / found["iteration_time_s"])
    assert 0 < max(found["by_task"].values()) <= found["iteration_time_s"]
    assert json.loads((tmp_path / "made/t/trace.json").read_text())["traceEvents"]
    other = run("simulate", *small, *files)
    assert other.returncode == 3 and "the simulator cannot play this plan" in other.stderr and "Traceback" not in other.stderr
