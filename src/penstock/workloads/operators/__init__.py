"""The reference operators for real: code that does the work the published models describe, to run on Spark or anywhere.

Each takes any tuple whose "value" is a number, or a message that has one (`penstock.workloads.incoming`), and sends on
that number with what it adds. Code and schema are `Logic`; addresses of services come from environment variables, read
when a thread opens, so the code can travel to other processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.workloads.operators.azure import azure_blob, azure_table
from penstock.workloads.operators.file_write import batch_file_write
from penstock.workloads.operators.parse_xml import parse_xml
from penstock.workloads.operators.pi import pi
from penstock.workloads.operators.services import services
from penstock.workloads.operators.words import split_words

if TYPE_CHECKING:
    from penstock.dataflow.logic import Logic

reference_logic: dict[str, Logic] = {
    "parse_xml": parse_xml,
    "pi": pi,
    "batch_file_write": batch_file_write,
    "azure_blob": azure_blob,
    "azure_table": azure_table,
    "split_words": split_words,
}
"""The code behind each model of the library."""

__all__ = [
    "azure_blob",
    "azure_table",
    "batch_file_write",
    "parse_xml",
    "pi",
    "reference_logic",
    "services",
    "split_words",
]
