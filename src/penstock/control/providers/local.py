"""Spark Workers as processes of this machine: the cluster that `penstock cluster up` or `penstock up` started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.control.providers.contract import ProvidedNode, ProviderError
from penstock.errors import PenstockError
from penstock.spark.standalone.cluster import add_node, cluster_status, find_cluster, remove_node

if TYPE_CHECKING:
    from pathlib import Path


class LocalProvider:
    def __init__(self, folder: Path, price: float | None = None) -> None:
        self._folder = folder
        self._price = price

    def acquire(self, count: int, size: str | None) -> list[ProvidedNode]:
        if size is not None:
            raise ProviderError(f"nodes of this machine have one size, not '{size}'")
        try:
            made = [add_node(self._folder) for _ in range(count)]
        except PenstockError as error:
            raise ProviderError(str(error)) from error
        return [ProvidedNode(node.name, node.slots, node.rack, node.memory_mb, self._price) for node in made]

    def release(self, name: str) -> None:
        try:
            remove_node(name, self._folder)
        except PenstockError as error:
            raise ProviderError(str(error)) from error

    def list(self) -> list[ProvidedNode]:
        try:
            alive = {node.name for node in cluster_status(self._folder).nodes if node.alive}
            nodes = find_cluster(self._folder).nodes
        except PenstockError as error:
            raise ProviderError(str(error)) from error
        return [
            ProvidedNode(node.name, node.slots, node.rack, node.memory_mb, self._price, node.name in alive)
            for node in nodes
        ]
