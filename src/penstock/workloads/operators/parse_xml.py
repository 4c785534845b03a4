"""Parses an array of XML messages held in memory for every tuple, in one pass each (SAX).

The parser takes no document type, so no entities either: what arrives in a stream is written by others.
"""

from __future__ import annotations

import io
import xml.sax
from typing import TYPE_CHECKING, Any
from xml.sax import handler, xmlreader

from penstock.base.errors import BadInputError
from penstock.dataflow.logic import Logic
from penstock.workloads.incoming import number_of

if TYPE_CHECKING:
    from xml.sax.xmlreader import AttributesImpl

MESSAGES = 4
READINGS = 8


def message(number: int, readings: int = READINGS) -> str:
    """About 1 KB: a station with its readings, text inside, as a sensor network sends it."""
    lines = [
        f'  <reading id="{number}-{place}" unit="celsius" quality="good"><time>{1_400_000_000 + 60 * place}</time>'
        f"<temperature>{(number * 7 + place * 13) % 400 / 10}</temperature></reading>"
        for place in range(readings)
    ]
    return "\n".join(['<?xml version="1.0"?>', f'<station name="s{number}">', *lines, "</station>"])


class _Counter(handler.ContentHandler, handler.LexicalHandler):
    def __init__(self) -> None:
        super().__init__()
        self.elements = self.attributes = 0
        self._text: list[str] = []

    def startElement(self, name: str, attrs: AttributesImpl) -> None:  # noqa: N802 - SAX's name
        self.elements += 1
        self.attributes += len(attrs)

    def characters(self, content: str) -> None:
        self._text.append(content)

    def endElement(self, name: str) -> None:  # noqa: N802 - SAX's name
        # what a translation to another form does with text: join its pieces and look at them
        "".join(self._text).strip()
        self._text.clear()

    def startDTD(self, name: str, public_id: str | None, system_id: str | None) -> None:  # noqa: N802 - SAX's name
        raise BadInputError(f"XML with a document type ('{name}') is not accepted")


class Reader:
    """A parser to use again and again, by one thread."""

    def __init__(self) -> None:
        self._parser = xml.sax.make_parser()  # noqa: S317 - document types are refused
        self._parser.setFeature(handler.feature_external_ges, False)
        self._parser.setFeature(handler.feature_external_pes, False)

    def count(self, text: str) -> tuple[int, int]:
        """How many elements and how many attributes `text` has."""
        counter = _Counter()
        self._parser.setContentHandler(counter)
        self._parser.setProperty(handler.property_lexical_handler, counter)
        source = xmlreader.InputSource()
        source.setCharacterStream(io.StringIO(text))
        try:
            self._parser.parse(source)
        except xml.sax.SAXException as error:
            raise BadInputError(f"not valid XML: {error}") from error
        return counter.elements, counter.attributes


_MESSAGES = tuple(message(number) for number in range(MESSAGES))


def parse_messages(row: dict[str, Any], reader: Reader) -> dict[str, Any]:
    elements = attributes = 0
    for text in _MESSAGES:
        counted = reader.count(text)
        elements += counted[0]
        attributes += counted[1]
    return {"value": number_of(row), "elements": elements, "attributes": attributes}


parse_xml = Logic(parse_messages, schema="value bigint, elements int, attributes int", open=Reader)
