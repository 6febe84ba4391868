"""The scratch folder of a stage and the request in it."""

from __future__ import annotations

from pathlib import Path

from artifacts.errors import InputError
from artifacts.invocation import StageRequest

REQUEST = "request.json"


def prepare(request: StageRequest, *, seen_as: str | None = None) -> Path:
    """Make the work folder and write the request into it; the folder's absolute path.

    ``seen_as`` is where the stage sees the folder when that is not where it is here (in a container).
    """
    folder = Path(request.workdir).absolute()
    written = request.model_copy(update={"workdir": seen_as or str(folder)})
    path = folder / REQUEST
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # never written through a link that an earlier stage left there
        with path.open("x", encoding="utf-8") as file:
            file.write(written.to_json())
    except OSError as error:
        raise InputError(f"cannot write the stage's work folder {folder}: {error.strerror}", fix="choose a folder you may write") from None
    return folder
