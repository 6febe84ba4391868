"""Where stages keep what they hand to each other: versions, history, lineage, leases; in a folder or in S3."""

from __future__ import annotations

from artifacts.store.audit import Finding
from artifacts.store.leases import Lease, is_held
from artifacts.store.settings import StoreSettings
from artifacts.store.store import LineageNode, Store, open_store
from artifacts.store.writer import VersionWriter

__all__ = ["Finding", "Lease", "LineageNode", "Store", "StoreSettings", "VersionWriter", "is_held", "open_store"]
