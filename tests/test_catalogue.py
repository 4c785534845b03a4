"""Which machines to rent, by hand; and the catalogues that are built in."""

from __future__ import annotations

import pytest

from penstock.base.errors import BadInputError
from penstock.cluster.file import parse_cluster
from penstock.cluster.topology import (
    CPU,
    MEMORY,
    Acquisition,
    Catalogue,
    Size,
    acquire,
    find_catalogue,
    known_catalogues,
    parse_catalogue,
    rent,
    with_prices,
)


# cover: floor(slots / largest) of the largest, then the smallest that covers the rest.
# exact: the rest by ever smaller sizes; what even the smallest cannot fill whole, by one smallest.
@pytest.mark.parametrize(
    ("slots", "sizes", "cover", "exact"),
    [
        # 15 = 8 + 7: one 8 covers 7; or 7 = 4 + 2 + 1
        (15, [1, 2, 4, 8], [8, 8], [8, 4, 2, 1]),
        # 16 = 8 + 8, nothing left
        (16, [1, 2, 4, 8], [8, 8], [8, 8]),
        # 3 < 8: the smallest that covers 3 is 4; or 2 + 1
        (3, [8, 4, 2, 1], [4], [2, 1]),
        # no size 1: 7 = 4 + 3, 3 is covered by 4; or 3 = 2 + 1, and the 1 needs a machine of 2
        (7, [2, 4], [4, 4], [4, 2, 2]),
        # one size only: ceil(7 / 3) = 3 machines
        (7, [3], [3, 3, 3], [3, 3, 3]),
        (1, [1, 2], [1], [1]),
        # the same size twice counts once
        (5, [2, 2, 4], [4, 2], [4, 2]),
    ],
)
def test_acquire(slots: int, sizes: list[int], cover: list[int], exact: list[int]) -> None:
    assert acquire(slots, sizes) == cover
    assert acquire(slots, sizes, Acquisition.EXACT) == exact


TWINS = Catalogue(
    "twins",
    (
        Size(name="small", slots=1, memory_mb=2000, price=0.1),
        Size(name="cheap", slots=4, memory_mb=8000, price=0.3),
        Size(name="dear", slots=4, memory_mb=16000, price=0.5),
    ),
)


def test_of_equally_large_sizes_the_cheapest_is_rented() -> None:
    # 9 = 4 + 4 + 1: 0.3 + 0.3 + 0.1 = 0.7
    cluster = rent(9, TWINS, Acquisition.COVER)
    assert [node.size for node in cluster.nodes] == ["cheap", "cheap", "small"]
    assert [node.name for node in cluster.nodes] == ["n1", "n2", "n3"]
    assert cluster.price == pytest.approx(0.7)
    assert len(cluster.slots) == 9
    assert dict(cluster.nodes[0].capacity) == {CPU: 400, MEMORY: 8000}


def test_sizes_are_sorted_by_slots_then_price_whatever_the_file_says() -> None:
    sizes = [
        {"name": "dear", "slots": 4, "memory_mb": 1, "price": 0.5},
        {"name": "cheap", "slots": 4, "memory_mb": 1, "price": 0.3},
        {"name": "one", "slots": 1, "memory_mb": 1, "price": 9},
    ]
    found = parse_catalogue({"name": "c", "sizes": sizes}, "c.yaml")
    assert [size.name for size in found.sizes] == ["one", "cheap", "dear"]
    assert [node.size for node in rent(4, found, Acquisition.COVER).nodes] == ["cheap"]


def test_the_documents_sizes() -> None:
    # 1, 2, 4, 8 slots at 0.098 per slot and hour
    found = find_catalogue("azure-d")
    assert [(size.name, size.slots) for size in found.sizes] == [("D1", 1), ("D2", 2), ("D3", 4), ("D4", 8)]
    assert [size.price / size.slots for size in found.sizes] == pytest.approx([0.098] * 4)


@pytest.mark.parametrize("name", known_catalogues())
def test_built_in_catalogues_can_be_rented_from(name: str) -> None:
    found = find_catalogue(name)
    cluster = rent(23, found, Acquisition.COVER)
    assert len(cluster.slots) >= 23
    assert cluster.price is not None
    assert cluster.price > 0


def test_there_are_three_catalogues() -> None:
    assert len(known_catalogues()) >= 3


def test_prices_come_from_the_catalogue_unless_the_cluster_says() -> None:
    given = parse_cluster(
        {"nodes": [{"slots": 4, "size": "D3"}, {"slots": 4, "size": "D3", "price": 1}, {"slots": 1, "size": "X"}]},
        "c.yaml",
    )
    priced = with_prices(given, find_catalogue("azure-d"))
    assert [node.price for node in priced.nodes] == [0.392, 1, None]
    # one price is unknown, so is the sum
    assert priced.price is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "c", "sizes": []}, "c.yaml: sizes: expected at least one size"),
        (
            {"name": "c", "sizes": [{"name": "a", "slots": 0, "memory_mb": 1, "price": 1}]},
            r"c.yaml: sizes\[0\].slots: .*greater than or equal to 1, found 0",
        ),
        (
            {"name": "c", "sizes": [{"name": "a", "slots": 1, "memory_mb": 0, "price": 1}]},
            r"c.yaml: sizes\[0\].memory_mb: .*greater than or equal to 0.001",
        ),
        (
            {"name": "c", "sizes": [{"name": "a", "slots": 1, "memory_mb": 1, "price": -1}]},
            r"c.yaml: sizes\[0\].price: .*greater than or equal to 0",
        ),
        (
            {"name": "c", "sizes": [{"name": "a", "slots": 1, "memory_mb": 1, "price": 1}] * 2},
            r"c.yaml: sizes\[1\].name: size 'a' is declared twice",
        ),
        ({"name": "c", "sizs": []}, "c.yaml: unknown key 'sizs'; did you mean 'sizes'"),
    ],
)
def test_bad_catalogues(data: object, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        parse_catalogue(data, "c.yaml")


def test_an_unknown_catalogue_lists_the_known() -> None:
    with pytest.raises(
        BadInputError, match=r"unknown catalogue 'azure'; did you mean 'azure-d'\? known: aws-m5, azure-d"
    ):
        find_catalogue("azure")
