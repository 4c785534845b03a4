"""File endings, sizes and colours that all pictures share."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, printable
from penstock.base.extras import missing_package
from penstock.base.files import output_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.figure import Figure

# No dates and no version of the drawing library: the same plan gives the same file.
METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
RESOLUTION = 150.0
"""Pixels per inch of a PNG."""
LONGEST_SIDE = 16_000
"""Pixels: a larger PNG is drawn at a lower resolution instead."""

INK = "#222222"
FAINT_INK = "#6b6b6b"
ALARM = "#c8102e"
"""Only for amounts above their limit or short of their target."""


def check_ending(path: Path) -> None:
    """Refuse a picture that cannot be made, before any work: an unknown ending, or no matplotlib."""
    if path.suffix.lower().removeprefix(".") not in METADATA:
        known = ", ".join(f".{ending}" for ending in METADATA)
        raise BadInputError(f"{path}: cannot draw to the ending '{path.suffix}'; known: {known}")
    try:
        import matplotlib  # noqa: F401, PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        raise missing_package("matplotlib", "drawing needs") from error


@contextmanager
def own_settings() -> Iterator[None]:
    """Settings of our own while a picture is made, whatever the user's matplotlib is set to."""
    import matplotlib  # noqa: PLC0415 - an optional extra

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from")  # a letter no font has is drawn as a box
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.hashsalt": "penstock",  # names of shapes in an SVG are random otherwise
                "svg.fonttype": "none",  # text stays text: it can be searched and copied
                "pdf.fonttype": 42,
                "hatch.linewidth": 0.6,
                "text.color": INK,
                "text.parse_math": False,  # a dollar in a name is a dollar
                "axes.edgecolor": FAINT_INK,
                "axes.labelcolor": INK,
                "xtick.color": FAINT_INK,
                "ytick.color": FAINT_INK,
            }
        )
        yield


def save(figure: Figure, path: Path) -> None:
    _escape_texts(figure)
    ending = path.suffix.lower().removeprefix(".")
    resolution = min(RESOLUTION, LONGEST_SIDE / max(figure.get_size_inches()))
    with output_path(path) as temporary:
        figure.savefig(temporary, format=ending, dpi=resolution, metadata=METADATA[ending], facecolor="white")


def _escape_texts(figure: Figure) -> None:
    """Escape characters that would turn the direction of a line: names come from untrusted files."""
    from matplotlib.text import Text  # noqa: PLC0415 - an optional extra
    from matplotlib.ticker import FixedFormatter  # noqa: PLC0415

    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text(), keep="\n"))
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, FixedFormatter):
                formatter.seq = [printable(label) for label in formatter.seq]


def number(value: float) -> str:
    """Four digits, or all of a larger whole number."""
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
