"""Names of the resources that pin an executor to a node or a slot, the same on every cluster manager.

A node advertises one unit of its own resource and one of `slot` for every slot, and every slot as a resource too.
Standalone Workers do so in a resource file, YARN by resource types, Kubernetes by extended resources.
"""

from __future__ import annotations

import re

SLOT = "slot"
"""The resource every node advertises, one unit per slot. Every executor asks for one, so that none gets a slot that is
taken; one that must run on a node asks for one of the node's own as well."""

RACK = "rack"
"""A resource with one unit, whose address is the rack of the node, if it is known."""


def resource_name(node: str) -> str:
    """Return the name of the resource of a node, which its executors ask for.

    `node-` and the node's name; every character but ASCII letters, digits and `-` becomes `_` and two hex digits per
    byte of UTF-8. Spark takes the name up to the first dot of a setting's key, and `cores`, `memory` and others are
    its own: so no dots, and a prefix. Different nodes get different names.
    """
    return "node-" + _escaped(node)


def slot_resource_name(node: str, number: int) -> str:
    """Return the name of the resource of one slot, of which there is one unit: an executor that asks for it has that
    slot of that node, and no other executor has it."""
    return f"slot-{number}-{_escaped(node)}"


def _escaped(node: str) -> str:
    return "".join(
        letter if re.fullmatch("[A-Za-z0-9-]", letter) else "".join(f"_{byte:02x}" for byte in letter.encode())
        for letter in node
    )
