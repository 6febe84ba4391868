"""Finds, in the store, what the stages before the first selected one have made, by lineage: a run goes on from one consistent history."""

from __future__ import annotations

from typing import Any

from artifacts.errors import InputError
from artifacts.manifest import Manifest, VersionRef
from artifacts.store import Store
from flows.graph import FILE, MAKER, ORDER, StageName


class Upstream:
    def __init__(self, store: Store) -> None:
        self._store = store

    def recent(self, stage: str, count: int) -> list[Manifest]:
        """The last published versions of a stage, newest first, each once."""
        refs = list(dict.fromkeys(reversed(self._store.history(stage))))[:count]
        return [self._store.manifest(ref) for ref in refs]

    def latest_with(self, stage: str, file: str, *, look_back: int = 20) -> VersionRef | None:
        """The newest version of a stage that holds a file."""
        return next((m.ref for m in self.recent(stage, look_back) if file in m.files), None)

    def before(self, first: StageName, *, cluster: dict[str, Any] | None, topology: str) -> dict[str, VersionRef]:
        """Artifact → version for all that was made before ``first``; empty when ``first`` is the first stage.

        Raises ``InputError`` when nothing was made, or not for that cluster.
        """
        index = ORDER.index(first)
        if index == 0:
            return {}
        previous = ORDER[index - 1]
        if topology:
            if previous != "profile":
                raise InputError("a topology can be chosen only when the run starts at schedule", fix="add --from schedule")
            return self._latest_job() | self.made_by(self._by_prefix("profile", topology))
        for manifest in self.recent(previous, 50):
            if previous != "profile" or cluster is None or manifest.parameters.get("cluster") == cluster.get("cluster"):
                return self._renewed((self._latest_job() if previous == "profile" else {}) | self._with_lineage(manifest))
        what = "for this cluster " if previous == "profile" and self.recent(previous, 1) else ""
        raise InputError(f"there is no version of {previous} {what}in the store to go on from", fix=f"run from {previous} first")

    def all_of(self, stage: StageName) -> dict[str, VersionRef]:
        """Artifact → version for the latest version of ``stage`` and everything it came from; empty when there is none."""
        latest = self.recent(stage, 1)
        return self._with_lineage(latest[0]) if latest else {}

    def _renewed(self, known: dict[str, VersionRef]) -> dict[str, VersionRef]:
        """With the latest version of schedule where it has the same plan: it is the one whose prediction is to be tested.

        A deployment that stood as a hit goes on naming the version its plan first came from.
        """
        latest = next(iter(self.recent("schedule", 1)), None)
        if latest is None or "plan" not in known:
            return known
        plan = FILE["plan"]
        same = latest.files[plan].identity == self._store.manifest(known["plan"]).files[plan].identity
        return known | self.made_by(latest) if same else known

    def _latest_job(self) -> dict[str, VersionRef]:
        job = self._store.latest("job")
        return {"job": job} if job else {}

    def _by_prefix(self, stage: str, prefix: str) -> Manifest:
        wanted = prefix.removeprefix(f"{stage}@")
        matching = [ref for ref in self._store.versions(stage) if ref.version.startswith(wanted)]
        matching = [ref for ref in matching if ref.version == wanted] or matching  # a forced rerun's name goes on from the first one's
        if len(matching) != 1:
            raise InputError(f"{len(matching)} versions of {stage} start with {prefix[:40]!r}", fix=f"see hetrl artifacts ls {stage}")
        return self._store.manifest(matching[0])

    def _with_lineage(self, manifest: Manifest) -> dict[str, VersionRef]:
        inputs = {name: ref for name, ref in manifest.inputs.items() if name != "calibration"}
        known = self.made_by(manifest) | inputs
        for ref in inputs.values():
            for artifact, source in self._with_lineage(self._store.manifest(ref)).items():
                known.setdefault(artifact, source)
        return known

    @staticmethod
    def made_by(manifest: Manifest) -> dict[str, VersionRef]:
        return {artifact: manifest.ref for artifact, maker in MAKER.items() if maker == manifest.stage and FILE[artifact] in manifest.files}
