"""Prefect's pages in a real browser without a screen: what they show once their scripts have run, and a picture of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_LOADING_MS = 20_000
"""Of the browser's own clock, which runs ahead while nothing happens."""


def browser() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")


def pictures() -> Path:
    """Where pictures go."""
    chosen = Path(os.environ["HETRL_SCREENSHOTS"])
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


def look(url: str, picture: Path, profile: Path) -> str:
    """The page's document, and its picture as PNG."""
    command = [browser() or "", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--window-size=1500,2200",
               f"--virtual-time-budget={_LOADING_MS}", "--hide-scrollbars", f"--screenshot={picture}", "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env={**os.environ, "HOME": str(profile)})
    return done.stdout
