"""Sizes of machines that can be rented, and which of them to take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError, nearest
from penstock.base.files import Amount, Count, Name, Spec, check, parse_yaml, read_document
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Cluster, MachineMemory, Node

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_CATALOGUE = "azure-d"


class Size(Spec):
    """One size of machine. `price` is per hour."""

    name: Name
    slots: Count
    memory_mb: MachineMemory
    price: Amount


class CatalogueFile(Spec):
    name: Name
    about: str = ""
    currency: str = "USD"
    sizes: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Sizes in order of rising slots, ties by price."""

    name: str
    sizes: tuple[Size, ...]
    currency: str = "USD"

    def price_of(self, size: str | None) -> float | None:
        return next((known.price for known in self.sizes if known.name == size), None)


class Acquisition(StrEnum):
    COVER = "cover"
    """The published rule: as many of the largest as fit whole, then the one smallest size that covers the rest."""
    EXACT = "exact"
    """Fill the rest with ever smaller sizes, so that no slot is bought in vain where size 1 exists."""


def acquire(slots: int, sizes: Sequence[int], acquisition: Acquisition = Acquisition.COVER) -> list[int]:
    """Sizes (in slots) of the machines to rent for `slots` slots.

    cover: `floor(slots / largest)` of the largest; the remainder r, if any, by the smallest size >= r.
    exact: `floor(r / size)` of every size from the largest down; what is left by the smallest size.
    """
    rising = sorted(set(sizes))
    largest = rising[-1]
    taken = [largest] * (slots // largest)
    rest = slots % largest
    if acquisition is Acquisition.EXACT:
        for size in reversed(rising[:-1]):
            taken += [size] * (rest // size)
            rest %= size
    if rest:
        taken.append(next(size for size in rising if size >= rest))
    return taken


def rent(slots: int, catalogue: Catalogue, acquisition: Acquisition) -> Cluster:
    """A cluster of at least `slots` slots in one rack; of equally large sizes the cheapest."""
    cheapest = {size.slots: size for size in reversed(catalogue.sizes)}
    nodes = []
    for number, wanted in enumerate(acquire(slots, list(cheapest), acquisition), start=1):
        size = cheapest[wanted]
        capacity = {CPU: CPU_POINTS_PER_SLOT * size.slots, MEMORY: size.memory_mb}
        nodes.append(Node(f"n{number}", "r1", size.slots, MappingProxyType(capacity), size.name, size.price))
    return Cluster(tuple(nodes))


def with_prices(cluster: Cluster, catalogue: Catalogue) -> Cluster:
    """The cluster with the catalogue's price for every node of a size it knows and no price of its own."""
    nodes = (
        node if node.price is not None else replace(node, price=catalogue.price_of(node.size)) for node in cluster.nodes
    )
    return replace(cluster, nodes=tuple(nodes))


def known_catalogues() -> list[str]:
    folder = resources.files("penstock.cluster") / "catalogues"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def find_catalogue(name_or_path: str) -> Catalogue:
    """A catalogue built in by name, or from a file."""
    if name_or_path in known_catalogues():
        text = (resources.files("penstock.cluster") / "catalogues" / f"{name_or_path}.yaml").read_text("utf-8")
        return parse_catalogue(parse_yaml(text, name_or_path), name_or_path)
    path = Path(name_or_path)
    if path.suffix not in {".yaml", ".yml", ".json"} and not path.exists():
        raise BadInputError(f"unknown catalogue '{name_or_path}'; {nearest(name_or_path, known_catalogues())}")
    return parse_catalogue(read_document(path), name_or_path)


def parse_catalogue(data: Any, where: str) -> Catalogue:
    spec = check(CatalogueFile, data, where)
    if not spec.sizes:
        raise BadInputError(f"{where}: sizes: expected at least one size")
    names = [size.name for size in spec.sizes]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise BadInputError(f"{where}: sizes[{position}].name: size '{name}' is declared twice")
    return Catalogue(spec.name, tuple(sorted(spec.sizes, key=lambda size: (size.slots, size.price))), spec.currency)
