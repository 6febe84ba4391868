"""Write the page."""

from __future__ import annotations

from tests.benchmarks.published.page import PAGE, render
from tests.benchmarks.published.rows import published_rows
from tests.benchmarks.published.selection import scored_rows


def main() -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"{PAGE.relative_to(PAGE.parents[2])}: {len(scored_rows())} of {len(published_rows())} rows scored")


if __name__ == "__main__":
    main()
