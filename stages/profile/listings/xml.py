"""XML from a file, without what makes XML dangerous: no entity is declared, expanded or fetched."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from artifacts.errors import InputError

MAX_BYTES = 64 << 20


def parse_xml(text: str, *, where: str) -> Element:
    """The root element. A document type that only names its DTD, as nvidia-smi prints, is accepted and not looked up.

    Raises :class:`InputError` on XML that is broken, too large, or declares entities.
    """
    data = text.encode(errors="replace")
    if len(data) > MAX_BYTES:
        raise InputError(f"{where} is larger than {MAX_BYTES >> 20} MiB", fix="give the output of nvidia-smi -q -x of one machine")
    builder = TreeBuilder()
    parser = expat.ParserCreate("utf-8")  # whatever the file was in and says of itself: the text is decoded already

    def refuse(*_: Any) -> Any:
        raise InputError(f"{where} declares XML entities, which no nvidia-smi prints", fix="give the file as the tool printed it")

    parser.EntityDeclHandler = parser.UnparsedEntityDeclHandler = parser.ExternalEntityRefHandler = refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
        return builder.close()
    except expat.ExpatError as error:
        raise InputError(f"{where} is not whole XML (line {error.lineno}: {expat.errors.messages[error.code]})",
                         fix="give the whole output of nvidia-smi -q -x") from None
