"""Views: the documents as people look at them. Reports, a plan in Markdown, rows for a table, the terminal's summary."""

from artifacts.views.markdown import plan_markdown
from artifacts.views.plan_diff import plan_diff_markdown
from artifacts.views.report import render_run_report, render_schedule_report
from artifacts.views.tables import validation_rows
from artifacts.views.terminal import terminal_summary

__all__ = ["plan_diff_markdown", "plan_markdown", "render_run_report", "render_schedule_report", "terminal_summary", "validation_rows"]
