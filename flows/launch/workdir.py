"""The scratch folder of a stage and the request in it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from artifacts.errors import InputError
from artifacts.invocation import StageRequest

REQUEST = "request.json"


def prepare(request: StageRequest, *, seen_as: str | None = None) -> Path:
    """Make the work folder and write the request into it; the folder's absolute path.

    ``seen_as`` is where the stage sees the folder when that is not where it is here (in a container).
    """
    folder = Path(request.workdir).absolute()
    written = request.model_copy(update={"workdir": seen_as or str(folder)})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REQUEST).write_text(written.to_json(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the stage's work folder {folder}: {error.strerror}", fix="choose a folder you may write") from None
    return folder


def local_store(url: str) -> Path | None:
    """The folder of a ``file://`` store; None for any other store."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
