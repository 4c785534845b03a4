"""What was measured, in words: lines that the shell prints, and what Python prints of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.report.report import Report


def figure(value: float | None, digits: int = 4) -> str:
    """A number as people read it; a dash where there is none or no bound."""
    if value is None or value in (float("inf"), float("-inf")):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def latencies(percentiles: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {figure(value)} ms" for name, value in percentiles.items())


def headline(what: str, report: Report, *, own_source: bool = False) -> str:
    """Of a source of the user's own what was offered is what came: said where that is not what was taken in."""
    is_same = own_source and report.offered_rate == report.sustained_rate
    offered = "" if is_same else f"offered {figure(report.offered_rate)}, "
    return (
        f"{what}: {offered}sustained {figure(report.sustained_rate)} "
        f"tuples/s ({report.verdict}) over {report.seconds:.1f} s"
    )


def latency_line(report: Report) -> str:
    return f"latency    {latencies(report.latency_ms) or '-'}"


def ids_line(report: Report) -> str:
    audit = report.audit
    audited = "taken in (not audited)"
    if audit.lost is not None and audit.duplicated is not None:
        audited = f"emitted, {audit.lost} lost, {audit.duplicated} duplicated"
    return f"ids        {audit.emitted:,} {audited}, {audit.filtered} filtered, {audit.dead} dead letters"


def error_text(rate_error: float | None) -> str:
    return "" if rate_error is None else f" (error {100 * rate_error:+.1f} %)"


def summary(
    first_line: str,
    report: Report,
    predicted_rate: float | None,
    rate_error: float | None,
    predicted_latency_ms: Mapping[str, float | None] | None,
) -> Iterator[str]:
    """Predicted beside measured, in a few lines."""
    yield first_line
    if predicted_rate is not None:
        yield f"predicted  at most {figure(predicted_rate)} tuples/s{error_text(rate_error)}"
    if predicted_latency_ms:
        yield f"predicted  latency {latencies(predicted_latency_ms)}"
    yield latency_line(report)
    yield ids_line(report)
    for note in report.notes:
        yield f"note       {note}"
