"""The plan in Markdown, rows for a table, the terminal's summary."""

from __future__ import annotations

import io
import re

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from artifacts.units import show_seconds
from artifacts.views import plan_markdown, terminal_summary, validation_rows
from artifacts.views.svg import nice_ticks, time_ticks
from artifacts.views.text import number, percent, plural, shares, tally
from tests.artifacts.views import view_samples
from tests.artifacts.views.hostile import HOSTILE, poisoned
from tests.artifacts.views.view_samples import Sample


def _html(s: Sample) -> str:
    """Markdown as a permissive renderer shows it: raw HTML let through, tables on."""
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(plan_markdown(s.job, s.topology, s.plan, s.prediction))


def _printed(s: Sample) -> str:
    out = io.StringIO()
    look = {"report": "s3://bucket/hetrl/report.html"}
    Console(file=out, width=120, no_color=True).print(
        terminal_summary(s.topology, s.plan, s.prediction, throughput=s.throughput, validation=s.validation, look=look)
    )
    return out.getvalue()


def test_markdown_says_who_runs_where_and_why() -> None:
    html = _html(view_samples.middle())
    assert "<h1>Plan for qwen3-4b-ppo</h1>" in html
    assert html.count("<table>") == 2
    for expected in (
        "24 × L40S",
        "a0, a1",
        "the fastest devices for rollout",
        "4 × 9",
        "2 min 15 s",
        "l3-0, l3-1, l3-2, l3-3: its link",
        "decoding is bound by memory bandwidth",
    ):
        assert expected in html, expected


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_hostile_strings_as_text(text: str) -> None:
    html = _html(poisoned(view_samples.small(), text))
    assert set(re.findall(r"<([a-z0-9]+)", html)) <= {"h1", "h2", "ul", "li", "strong", "table", "thead", "tbody", "tr", "th", "td", "p"}
    rows = re.findall(r"<tr>(.*?)</tr>", html, flags=re.S)
    assert {len(re.findall(r"<t[hd]", row)) for row in rows} == {5, 9}
    assert "\x1b" not in html


def test_validation_rows_put_the_iteration_first_then_the_longest() -> None:
    rows = validation_rows(view_samples.small().validation)
    assert [r["task"] for r in rows] == ["whole iteration", "rollout", "actor training", "reference inference", "weight update"]
    # rollout: 0.55 × 3.1 s predicted, 1.3 times that measured, so the error is 1/1.3 − 1
    assert rows[1] == {
        "task": "rollout",
        "device class": "cpu",
        "predicted": "1.71 s",
        "measured": "2.22 s",
        "error": "−23 %",
        "spread": "6.0 %",
        "iterations": "7",
        "verdict": "",
    }
    assert rows[0]["verdict"] == "ok"


def test_terminal_summary_fits_and_tells_all() -> None:
    text = _printed(view_samples.middle())
    for expected in (
        "A  rollout 12×1×2  on 24 × L40S",
        "4 devices idle",
        ": its link would slow every collective it joins",
        "reward 0.345 → 0.986, loss 0.02 → 0.0025",
        "−23 %",
        "prediction holds: −15 %, bound ±35 %",
        "report: s3://bucket/hetrl/report.html",
    ):
        assert expected in text, expected


def test_terminal_summary_without_a_run_shows_the_plan_alone() -> None:
    s, out = view_samples.small(), io.StringIO()
    Console(file=out, width=120).print(terminal_summary(s.topology, s.plan, s.prediction))
    assert "predicted iteration 3.10 s" in out.getvalue()
    assert "measured" not in out.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
def test_terminal_prints_hostile_strings_as_text(text: str) -> None:
    printed = _printed(poisoned(view_samples.small(), text))
    assert "\x1b" not in printed and "\x00" not in printed
    if text.startswith("[bold red]"):
        assert "[bold red]markup[/]" in printed


def test_figures_read_well() -> None:
    assert [percent(x) for x in (0.05, 0.4, 3.2, 14)] == ["5.0 %", "40 %", "320 %", "14×"]
    assert [percent(x, signed=True) for x in (-0.154, 0.001, 11.0)] == ["−15 %", "+0.1 %", "12×"]
    assert [number(x) for x in (0, 0.0025, 12.345, 1234.5, 3e9, -0.5)] == ["0", "0.0025", "12.3", "1,234", "3.00e+09", "−0.5"]
    assert [shares([9, 9, 9, 9]), shares([36]), shares([8, 7]), shares(list(range(1, 21)))] == ["4 × 9", "36", "8, 7", "1–20, 20 shares"]
    assert tally(["b", "a", "b"]) == "2 × b, 1 × a"
    assert [plural(1, "device"), plural(1024, "device")] == ["1 device", "1,024 devices"]


def test_seconds_never_reach_sixty() -> None:
    assert [show_seconds(x) for x in (179.7, 120.0, 59.994, 0.0015)] == ["3 min 0 s", "2 min 0 s", "59.99 s", "1.5 ms"]


def test_ticks_are_round_in_the_unit_of_the_axis() -> None:
    assert nice_ticks(1.0, 5) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert time_ticks(400.0) == [(0.0, "0 min"), (120.0, "2 min"), (240.0, "4 min"), (360.0, "6 min")]
    assert [label for _, label in time_ticks(0.01, 4)] == ["0 ms", "5 ms", "10 ms"]
