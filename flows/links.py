"""Where a person finds a stored file."""

from __future__ import annotations

import os

from artifacts.manifest import Manifest
from artifacts.store import Store


def link(store: Store, manifest: Manifest, file: str) -> str:
    """An address: below ``HETRL_BROWSE`` (the store's root as a browser sees it) where that is set, else in the store's own URL."""
    base = os.environ.get("HETRL_BROWSE", "").rstrip("/") or store.url
    return f"{base}/{store.pipeline}/{manifest.stage}/{manifest.version}/{manifest.files[file].key}"
