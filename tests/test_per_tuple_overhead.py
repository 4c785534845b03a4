"""What a worker does with every tuple is in every model, and counts once where operators run fused."""

from __future__ import annotations

import pytest

import penstock
from penstock.modelling.library import demands_to_run
from penstock.modelling.model import MeasuredOn, Model, Point, handling_cpu_seconds, handling_seconds, without_handling
from penstock.planning.prediction.fused import fused_setup

ON = MeasuredOn(batch_seconds=1.0, batch_overhead_ms=250, handling_us=2000)
POINT = Point(threads=2, rate=100, cpu=0.9, memory=0.1, operator_cpu=0.7)


def test_an_operator_without_handling() -> None:
    # 125 tuples in 1 s of work: 8 ms each, 6 ms without handling; 166.7 tuples in 1 s, 133.3 a second. Of the 7 ms of
    # CPU a tuple, 5 ms are left: 0.667 of a core
    model = without_handling(Model("m", (POINT,), ON))
    assert model.points[0].rate == pytest.approx(1000 / 6 / 1.25)
    assert model.points[0].operator_cpu == pytest.approx(0.005 * 1000 / 6 / 1.25)
    assert model.measured_on.handling_us is None
    assert without_handling(model) is model


def test_an_operator_that_seems_to_do_less_than_nothing() -> None:
    fast = POINT.model_copy(update={"rate": 1000})
    # 0.8 ms a tuple, of which a twentieth is left
    assert without_handling(Model("m", (fast,), ON)).points[0].rate == pytest.approx(20_000)


def test_the_mean_of_what_models_say() -> None:
    said, silent = Model("m", (POINT,), ON), Model("n", (POINT,), MeasuredOn())
    other = Model("o", (POINT,), MeasuredOn(handling_us=4000))
    assert handling_seconds([said, silent, other]) == pytest.approx(0.003)
    assert handling_seconds([silent]) == 0


def test_waiting_for_spark_is_no_cpu() -> None:
    # of the 2 ms of any tuple, 0.5 are CPU: of the 7 ms of CPU a tuple, 6.5 ms are left
    on = ON.model_copy(update={"column_handling_us": 2000, "column_handling_cpu_us": 500})
    measured = Model("m", (POINT,), on)
    assert handling_cpu_seconds([measured]) == pytest.approx(0.0005)
    assert handling_cpu_seconds([Model("m", (POINT,), ON)]) == pytest.approx(0.002)
    left = without_handling(measured).points[0]
    assert left.rate == pytest.approx(1000 / 6 / 1.25)
    assert left.operator_cpu == pytest.approx(0.0065 * 1000 / 6 / 1.25)


@pytest.mark.parametrize("operators", [1, 2, 5])
def test_a_chain_pays_once(operators: int) -> None:
    library = penstock.ModelLibrary.of([Model("m", (POINT.model_copy(update={"threads": 1}),), ON)])
    built = penstock.pipeline("p").source("s")
    for number in range(operators):
        built = built.then(f"o{number}", model="m")
    pipeline = built.sink("out").build()
    setup = fused_setup(pipeline, None, demands_to_run(pipeline, library), 1, 10.0, 2)
    # 2 ms of handling and 6 ms for every operator; batches of about two seconds, and 0.25 s for the engine
    each = 0.002 + 0.006 * operators
    assert setup.rate() == pytest.approx(setup.most_rows / (setup.most_rows * each + 0.25))
    assert setup.most_rows == pytest.approx(2 / each, abs=0.5)
    # 5 ms of CPU for every operator
    assert setup.cpu_per_tuple == pytest.approx(0.002 + 0.005 * operators)
    assert setup.use(10).cpu == pytest.approx(10 * setup.cpu_per_tuple)
    assert setup.batch_seconds(100) == pytest.approx(0.25 + 100 * each)
