"""``hetrl artifacts``: read the store: what there is, what came from what, what differs, whether it is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from artifacts.errors import InputError, StoreError
from artifacts.manifest import Manifest, VersionRef
from artifacts.registry import DOCUMENTS
from artifacts.store import LineageNode, Store, open_store
from artifacts.units import show_bytes
from flows.cli import artifact_refs as refs
from flows.session import default_store

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
console = Console(soft_wrap=True, highlight=False, markup=False)

StoreOption = Annotated[str, typer.Option("--store", help="file:///… or s3://… Default: as for hetrl run.")]
PipelineOption = Annotated[str, typer.Option("--pipeline", help="Name of the pipeline in the store.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on the last line.")]
FileOption = Annotated[str, typer.Option("--file", help="A file of the version, like plan or plan.json.")]
REF = "stage, stage@version-prefix, or a file's path."
SHORT = 10


@app.command()
def ls(stage: Annotated[str, typer.Argument(help="Only this stage.")] = "", store: StoreOption = "", pipeline: PipelineOption = "hetrl",
       as_json: JsonOption = False) -> None:
    """Committed versions, newest last; ◀ marks the latest of a stage.

    Example: hetrl artifacts ls schedule
    """
    opened = _open(store, pipeline)
    rows: list[dict[str, Any]] = []
    for name in [stage] if stage else opened.stages():
        latest = opened.latest(name)
        rows += [{**_row(opened, ref), "latest": ref == latest} for ref in opened.versions(name)]
    if rows:
        table = Table("stage", "version", "when", "summary", "", box=None, pad_edge=False)
        for row in rows:
            table.add_row(row["stage"], _short(row["version"]), row["when"][:19].replace("T", " "), Text(_brief(row["summary"])),
                          "◀ latest" if row["latest"] else "")
        console.print(table)
    else:
        console.print(f"nothing in {opened.url}/{pipeline}" + (f" for {stage}" if stage else ""))
    _last_line(as_json, {"store": opened.url, "pipeline": pipeline, "versions": rows})


@app.command()
def show(ref: Annotated[str, typer.Argument(help=REF)], file: FileOption = "",
         out: Annotated[Path | None, typer.Option("--out", help="Write the file there instead.")] = None,
         store: StoreOption = "", pipeline: PipelineOption = "hetrl", as_json: JsonOption = False) -> None:
    """A version's manifest, or one of its files (verified).

    Example: hetrl artifacts show schedule --file plan
    """
    if refs.is_path(ref):
        content = next(iter(refs.structured_files(_open(store, pipeline), ref, "").values()))
        console.print(json.dumps(content, indent=1, ensure_ascii=False))
        _last_line(as_json, {"file": ref, "content": content})
        return
    opened = _open(store, pipeline)
    manifest = opened.manifest(refs.resolve(opened, ref))
    if not file:
        _print_manifest(opened, manifest)
        _last_line(as_json, manifest.model_dump(mode="json"))
        return
    name = refs.file_of(manifest, file)
    if out is not None:
        opened.read_file(manifest.ref, name, out)
        console.print(f"{name} of {manifest.ref} → {out}")
        _last_line(as_json, {"ref": str(manifest.ref), "file": name, "out": str(out)})
        return
    try:
        text = opened.read_bytes(manifest.ref, name).decode()
    except UnicodeDecodeError:
        raise InputError(f"{name} of {manifest.ref} is not text", fix="write it to a file with --out") from None
    typer.echo(text, nl=not text.endswith("\n"))
    if as_json:
        content = refs.decode(name, text) if name.endswith((".json", ".jsonl")) else text
        _last_line(True, {"ref": str(manifest.ref), "file": name, "content": content})


@app.command()
def lineage(ref: Annotated[str, typer.Argument(help="stage or stage@version-prefix.")], store: StoreOption = "",
            pipeline: PipelineOption = "hetrl", as_json: JsonOption = False) -> None:
    """What a version was made from, down to the first inputs.

    Example: hetrl artifacts lineage validate
    """
    opened = _open(store, pipeline)
    node = opened.lineage(refs.resolve(opened, ref))
    tree = Tree(_label(node, ""))
    _grow(tree, node)
    console.print(tree)
    _last_line(as_json, _lineage_json(node))


@app.command()
def diff(one: Annotated[str, typer.Argument(help=REF)], other: Annotated[str, typer.Argument(help=REF)], file: FileOption = "",
         store: StoreOption = "", pipeline: PipelineOption = "hetrl", as_json: JsonOption = False) -> None:
    """Two documents (or all JSON files of two versions) side by side: the fields that differ.

    Example: hetrl artifacts diff schedule@1f3a schedule@77c0 --file plan
    """
    opened = _open(store, pipeline)
    changed = refs.changes(refs.structured_files(opened, one, file), refs.structured_files(opened, other, file))
    if changed:
        table = Table("field", escape(one), escape(other), box=None, pad_edge=False)
        for change in changed:
            table.add_row(Text(change.field), Text(_side(change.before), style="red"), Text(_side(change.after), style="green"))
        console.print(table)
    else:
        console.print("no difference")
    _last_line(as_json, {"equal": not changed, "changed": [change._asdict() for change in changed]})


@app.command()
def verify(ref: Annotated[str, typer.Argument(help="stage or stage@version-prefix; nothing: everything.")] = "", store: StoreOption = "",
           pipeline: PipelineOption = "hetrl", as_json: JsonOption = False) -> None:
    """Read every byte and compare it with the manifests. Exit status 6 when something is wrong.

    Example: hetrl artifacts verify
    """
    opened = _open(store, pipeline)
    with Console(stderr=True).status("reading every object …"):
        target = refs.resolve(opened, ref) if ref else None
        findings = opened.verify(target)
        checked = [target] if target else [one for stage in opened.stages() for one in opened.versions(stage)]
    for finding in findings:
        console.print(f"{finding.fault:10}  {finding.message}")
    console.print(f"{len(checked)} versions read, {len(findings)} faults")
    _last_line(as_json, {"ok": not findings, "versions": [str(one) for one in checked],
                         "findings": [finding.model_dump(mode="json") for finding in findings]})
    if findings:
        raise StoreError(f"{len(findings)} objects of {opened.url}/{pipeline} are not what was stored: {findings[0].message}"
                         + (" (and others, above)" if len(findings) > 1 else ""), fix="restore them from a backup, or run with --force")


@app.command()
def schema(artifact: Annotated[str, typer.Argument(help="Name of a document, like plan.")]) -> None:
    """The JSON schema of a document.

    Example: hetrl artifacts schema plan
    """
    if artifact not in DOCUMENTS:
        raise InputError(f"there is no document {artifact[:60]!r}", fix="known: " + ", ".join(sorted(DOCUMENTS)))
    typer.echo(json.dumps(DOCUMENTS[artifact].model_json_schema(), indent=1, ensure_ascii=False))


@app.command()
def sweep(older_than: Annotated[str, typer.Option("--older-than", help="Longer than any stage may run: 30m, 24h, 7d.")] = "24h",
          store: StoreOption = "", pipeline: PipelineOption = "hetrl", as_json: JsonOption = False) -> None:
    """Remove what interrupted stages left and nobody committed.

    Example: hetrl artifacts sweep --older-than 7d
    """
    opened = _open(store, pipeline)
    removed = opened.sweep(refs.seconds_of(older_than))
    for key in removed:
        console.print(f"removed {key}")
    console.print(f"{len(removed)} objects removed")
    _last_line(as_json, {"removed": removed})


def _open(store: str, pipeline: str) -> Store:
    return open_store(store or default_store(), pipeline=pipeline)


def _last_line(as_json: bool, value: dict[str, Any]) -> None:
    if as_json:
        typer.echo(json.dumps(value, ensure_ascii=False))


def _row(store: Store, ref: VersionRef) -> dict[str, Any]:
    try:
        manifest = store.manifest(ref)
    except StoreError as error:
        return {"stage": ref.stage, "version": ref.version, "when": "", "summary": {"damaged": error.message}}
    when = manifest.producer.finished_at.astimezone().isoformat(timespec="seconds")
    return {"stage": ref.stage, "version": ref.version, "when": when, "summary": manifest.summary}


def _brief(summary: dict[str, Any], most: int = 100) -> str:
    parts = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in summary.items()]
    text = ", ".join(parts)
    return text if len(text) <= most else text[:most] + "…"


def _print_manifest(store: Store, manifest: Manifest) -> None:
    console.print(f"{manifest.ref}   {store.url}/{store.layout.version(manifest.ref)}")
    producer = manifest.producer
    took = (producer.finished_at - producer.started_at).total_seconds()
    console.print(f"made      {producer.finished_at.astimezone():%Y-%m-%d %H:%M:%S} in {took:.1f} s by hetrl {producer.hetrl}"
                  + (f" on {producer.host}" if producer.host else "") + (f", run {producer.run_id}" if producer.run_id else ""))
    for name, source in sorted(manifest.inputs.items()):
        console.print(f"input     {name} of {source}")
    for title, values in (("parameter", manifest.parameters), ("summary", manifest.summary)):
        for key, value in values.items():
            console.print(f"{title:9} {key} = {json.dumps(value, ensure_ascii=False)}")
    for name, entry in sorted(manifest.files.items()):
        console.print(f"file      {name}  {show_bytes(entry.size_bytes)}  sha256 {entry.sha256[:16]}…")


def _label(node: LineageNode, name: str) -> Text:
    text = Text(f"{name}: " if name else "")
    text.append(f"{node.ref.stage}@{_short(node.ref.version)}", style="bold")
    if node.manifest is None:
        return text.append(f"  {node.problem}", style="red")
    when = node.manifest.producer.finished_at.astimezone()
    return text.append(f"  {when:%Y-%m-%d %H:%M}  {_brief(node.manifest.summary, 60)}", style="dim")


def _grow(tree: Tree, node: LineageNode) -> None:
    for name, source in node.inputs.items():
        _grow(tree.add(_label(source, name)), source)


def _lineage_json(node: LineageNode) -> dict[str, Any]:
    return {"ref": str(node.ref), "problem": node.problem, "inputs": {name: _lineage_json(source) for name, source in node.inputs.items()}}


def _side(value: str | None) -> str:
    return "—" if value is None else value if len(value) <= 80 else value[:80] + "…"


def _short(version: str) -> str:
    """The first characters of a version, and which repetition of its key it is."""
    key, dot, repetition = version.partition(".")
    return f"{key[:SHORT]}{dot}{repetition}"
