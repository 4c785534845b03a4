"""The elastic core in tables, with the arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.topology import Slot
from penstock.control.core.messages import PartReading
from penstock.control.elasticity import estimates as catch_up
from penstock.control.elasticity import learned_factor as learned
from penstock.control.elasticity import load_forecasts as smoothing
from penstock.control.elasticity import readings as gathering
from penstock.control.elasticity.estimates import cost_of_change, doublings_after, response_seconds, units_in_time
from penstock.control.elasticity.learned_factor import drifted, drifted_from
from penstock.control.elasticity.load_forecasts import Seasonal
from penstock.control.elasticity.memory import LastChange, Memory, Observed, VerdictKind
from penstock.control.elasticity.options import Bounds, ElasticOptions, even
from penstock.control.elasticity.readings import BATCH_COST, NOTHING, SLOT_MEMORY, after_parts
from penstock.control.elasticity.size_decision import decide
from penstock.control.registry import FORECASTS


class Hundred:
    """A unit does 100 tuples/s."""

    def units_for(self, rate: float) -> int | None:
        return max(1, math.ceil(rate / 100 - 1e-9))

    def rate_on(self, units: int) -> float | None:
        return 100.0 * units


class World:
    """One pipeline whose queue is worked out by hand, a decision every ten seconds."""

    def __init__(self, options: ElasticOptions | None = None, units: int = 10, bounds: Bounds | None = None) -> None:
        self.options, self.bounds = options or ElasticOptions(), bounds or Bounds()
        self.memory, self.units, self.backlog, self.now = Memory(), units, 0.0, 0.0
        self.kinds: list[VerdictKind] = []
        self.why: list[str] = []

    def run(self, rate: float | None, seconds: float, *, works: float = 1.0, veto: object = None) -> None:
        for _ in range(int(seconds // 10)):
            self.now += 10
            capacity = 100.0 * self.units * works
            done = min(self.backlog / 10 + (rate or 0.0), capacity)
            self.backlog = max(0.0, self.backlog + 10 * ((rate or 0.0) - done))
            seen = Observed(rate, done, self.backlog, done / capacity, None, self.units, self.units, 15.0)
            self.memory, verdict = decide(
                self.memory,
                seen,
                Hundred(),
                self.bounds,
                self.options,
                self.now,
                veto,  # type: ignore[arg-type]
            )
            self.units = verdict.units
            self.kinds.append(verdict.kind)
            self.why.append(verdict.why)

    def changes(self) -> int:
        return sum(kind in {VerdictKind.GROW, VerdictKind.SHRINK} for kind in self.kinds)


class TestParts:
    @pytest.mark.parametrize(
        ("backlog", "rate", "capacity", "seconds"),
        [(0, 500, 100, 0.0), (1000, 500, 600, 10.0), (1000, 600, 600, math.inf), (1, 700, 600, math.inf)],
    )
    def test_catch_up_is_backlog_over_what_is_spare(
        self, backlog: float, rate: float, capacity: float, seconds: float
    ) -> None:
        assert catch_up.catch_up_seconds(backlog, rate, capacity) == seconds

    def test_what_clears_a_backlog_counts_the_change_too(self) -> None:
        # 100 + (600 + 100 * 6) / 60 = 120
        assert catch_up.rate_to_catch_up(600, 100, 60, 6) == pytest.approx(120)

    def test_a_level_ignores_one_outlier_and_believes_two(self) -> None:
        smoothed = smoothing.first(100)
        for _ in range(100):
            smoothed = smoothing.after(smoothed, 100, 10, 60)
        once = smoothing.after(smoothed, 300, 10, 60)
        assert once.level == pytest.approx(100)
        twice = smoothing.after(once, 300, 10, 60)
        assert twice.level == pytest.approx(300)
        assert twice.jumped

    def test_the_slope_of_an_even_rise_is_found(self) -> None:
        smoothed = smoothing.first(1000)
        for step in range(1, 1000):
            smoothed = smoothing.after(smoothed, 1000 + step, 10, 60)
        assert smoothing.slope(smoothed, 60) == pytest.approx(0.1, rel=0.1)

    def test_a_season_is_scaled_by_how_it_stands_now(self) -> None:
        forecast = Seasonal()
        for bucket in range(144):
            forecast = forecast.after(bucket * 600.0, 200.0 if bucket >= 72 else 100.0)
        noon = 72 * 600.0
        # 11:30, 100 is usual and 150 is: at noon 200 * 1.5 are expected
        assert forecast.highest(noon - 1800, 3600, 150) == pytest.approx(300)
        assert forecast.highest(0.0, 3600, 100) == pytest.approx(100)

    @pytest.mark.parametrize("name", FORECASTS.names())
    def test_every_forecast_learns_without_changing_itself(self, name: str) -> None:
        forecast = FORECASTS.create(name)
        later = forecast.after(0.0, 500.0)
        assert forecast.highest(0.0, 3600, 1.0) in (None, 1.0)
        assert later.highest(86_400.0 - 600, 3600, 500.0) in (None, 500.0)

    def test_partitions_are_divided_evenly_where_that_is_near(self) -> None:
        assert [even(units, Bounds(divisor_of=12)) for units in (1, 4, 5, 7, 11, 13)] == [1, 4, 6, 7, 12, 12]

    def test_waits_double_only_where_a_change_did_not_pay(self) -> None:
        options = ElasticOptions(worth_seconds=900)
        shrunk = Memory(last=LastChange(0.0, 10, 8, 0.0))
        # it saved 2 * 600 unit-seconds of the 10 * 900 a change is worth
        assert doublings_after(shrunk, options, 600.0, grows=True) == 1
        assert doublings_after(shrunk, options, 86_400.0, grows=True) == 0
        assert doublings_after(shrunk, options, 600.0, grows=False) == 0
        assert cost_of_change(shrunk._replace(doublings=1), options, 10) == 10 * (10 + 2 * 900)


class TestGathering:
    """What comes between two decisions."""

    def test_readings_are_added_up_and_what_is_no_number_is_left_out(self) -> None:
        gathered = NOTHING
        for rate, done, busy in ((100.0, 90.0, 0.5), (math.nan, 1.0, 0.1), (110.0, 100.0, 0.7)):
            gathered = gathering.after(gathered, {"offered_rate": rate, "rate": done, "busy": busy}, None, 1.0)
        assert (gathered.rate, gathered.processed_rate) == (105.0, 95.0)
        assert gathered.busy == pytest.approx(0.6)

    def test_two_readings_far_off_start_the_mean_anew_and_one_does_not(self) -> None:
        gathered = NOTHING
        for second, rate in enumerate([100.0, 100.0, 300.0, 100.0]):
            gathered = gathering.after(gathered, {"offered_rate": rate}, None, second)
        assert gathered.rate == 150.0
        assert gathered.risen_at is None
        for second, rate in enumerate([400.0, 420.0], 4):
            gathered = gathering.after(gathered, {"offered_rate": rate}, None, second)
        assert gathered.rate == 410.0
        assert [gathered.has_risen(now) for now in (6.9, 7.0)] == [False, True]

    def test_a_load_that_always_swings_does_not_jump(self) -> None:
        swings = smoothing.first(100)._replace(spread=0.2)
        gathered = NOTHING
        for second, rate in enumerate([100.0, 200.0, 205.0]):
            gathered = gathering.after(gathered, {"offered_rate": rate}, swings, second)
        assert gathered.rate == pytest.approx(505 / 3)

    def test_the_first_reading_is_held_against_the_level_known(self) -> None:
        level = smoothing.first(100)
        gathered = gathering.after(NOTHING, {"offered_rate": 300.0}, level, 0.0)
        gathered = gathering.after(gathered, {"offered_rate": 310.0}, level, 1.0)
        assert gathered.risen_at == 1.0


class TestResponse:
    def test_batches_follow_each_other_and_a_tuple_waits_for_two(self) -> None:
        # half of what can be done arrives: a batch takes 0.3 / (1 - 0.5); a tuple waits for one, then for its own
        assert response_seconds(50, 100, 0.3) == pytest.approx(1.2)
        assert response_seconds(100, 100, 0.3) == math.inf

    def test_the_fewest_units_that_are_in_time(self) -> None:
        # 2 * 0.3 / (1 - 250 / (100 u)) <= 2: 0.7 >= 2.5 / u
        assert units_in_time(250, 2.0, 0.3, 10, Hundred().rate_on) == 4
        assert units_in_time(250, 2.0, 0.3, 3, Hundred().rate_on) == 0
        assert units_in_time(250, 0.5, 0.3, 1000, Hundred().rate_on) == 0
        assert units_in_time(250, 2.0, 0.3, 10, lambda _: None) == 0


class TestLearning:
    def test_it_counts_after_some_readings_and_says_when_it_left_the_profile(self) -> None:
        speed = learned.UNKNOWN
        for second in range(5):
            speed = learned.after(speed, 0.7, 10, second)
        assert speed.factor == 1.0
        assert drifted(speed) is None
        speed = learned.after(speed, 0.7, 10, 6)
        assert speed.factor == pytest.approx(0.7, rel=1e-6)
        assert "30% slower than profiled" in str(drifted(speed))

    def test_a_figure_of_its_own_unit_is_held_against_the_profiled_one(self) -> None:
        memory = learned.UNKNOWN
        for turn in range(10):
            memory = learned.after(memory, 150.0, 10, 10 * turn)
            assert (drifted_from(memory, 100.0, "memory") is not None) == (turn >= 6)
        assert "memory is 50% more than profiled" in str(drifted_from(memory, 100.0, "memory"))
        assert drifted_from(memory, 140.0, "memory") is None
        assert drifted_from(memory, 1000.0, "memory") is None
        assert drifted_from(memory, None, "memory") is None
        assert drifted_from(None, 100.0, "memory") is None

    @pytest.mark.parametrize("reading", [math.nan, math.inf, -1.0, 0.0])
    def test_what_is_no_rate_teaches_nothing(self, reading: float) -> None:
        assert learned.after(learned.UNKNOWN, reading, 10, 0.0) == learned.UNKNOWN

    def test_operators_and_slots_are_learned_part_by_part(self) -> None:
        parts = (
            PartReading("work", None, {"rate_in": 50.0, "busy": 0.5, "threads": 2.0}),
            PartReading("idle", None, {"rate_in": 1.0, "busy": 0.001}),
            PartReading("odd", None, {"rate_in": math.nan, "busy": 0.5}),
            PartReading("work", Slot("n1", 0), {"rate_in": 50.0, "busy": 0.5}),
            PartReading(None, Slot("n1", 0), {"memory_mb": 300.0}),
        )
        known = after_parts({}, parts, 10.0)
        assert {name: figure.value for name, figure in known.items()} == {"work": 50.0, SLOT_MEMORY: 300.0}
        faster = PartReading("work", None, {"rate_in": 70.0, "busy": 0.5, "threads": 2.0})
        known = after_parts(known, (faster,), 20.0, {"batch_cost_s": 0.3})
        assert known[BATCH_COST].value == pytest.approx(0.3)
        figure = known["work"]
        assert (figure.value, figure.readings, figure.since) == (60.0, 2, 10.0)
        assert figure.spread > 0


class TestFollowing:
    def test_constant_load_changes_nothing(self) -> None:
        world = World()
        world.run(900, 86_400)
        assert world.changes() == 0

    def test_a_step_is_met_at_once_and_by_one_change(self) -> None:
        world = World()
        world.run(900, 3600)
        world.run(2700, 20)
        assert world.units >= 27
        world.run(2700, 600)
        assert world.changes() == 1
        assert world.backlog == 0

    def test_a_jump_beyond_what_units_do_is_met_before_tuples_wait_long(self) -> None:
        world = World()
        world.run(900, 600)
        # five seconds of it: 1 s of waiting, and 15 s more once a change of 10 s is done
        seen = Observed(2500.0, 1000.0, 1000.0, 1.0, None, 10, 10, 15.0)
        _, verdict = decide(world.memory, seen, Hundred(), Bounds(), ElasticOptions(), world.now + 5)
        assert verdict.kind is VerdictKind.GROW
        assert verdict.why.startswith("tuples will wait 16.0 s")
        # while nobody knows how fast units are, what waits is believed and nothing else
        unknown, idle = world.memory._replace(speed=learned.UNKNOWN), seen._replace(backlog=0.0)
        assert decide(unknown, idle, Hundred(), Bounds(), ElasticOptions(), world.now + 5)[1].kind is VerdictKind.HOLD

    def test_what_is_not_needed_goes_after_a_quarter_of_an_hour_and_in_one_step_where_it_ran_before(self) -> None:
        world = World()
        world.run(900, 3600)
        world.run(2700, 3600)
        world.run(900, 890)
        assert world.units >= 27
        world.run(900, 3600)
        assert 10 <= world.units <= 12
        assert world.changes() == 2

    def test_a_first_size_from_wrong_models_is_put_right_once_and_kept(self) -> None:
        world = World(units=11)
        world.run(900, 86_400)
        assert world.units == 10
        assert world.changes() == 1

    def test_nothing_is_given_back_while_the_load_rises(self) -> None:
        world = World(units=30)
        for step in range(170):
            world.run(1000 + 10 * step, 10)
        assert world.changes() == 0

    def test_an_unknown_size_is_reached_by_at_most_two_fifths_a_step(self) -> None:
        world = World(units=30)
        world.run(500, 1800)
        assert world.units == 18

    def test_without_a_load_the_last_good_size_is_kept_and_it_is_said(self) -> None:
        world = World()
        world.run(900, 600)
        for bad in (None, math.nan, -5.0):
            world.run(bad, 120)
            assert world.units == 10
            assert world.kinds[-1] is VerdictKind.UNMEASURED
            assert "last good size is kept" in world.why[-1]

    def test_growth_without_effect_is_given_up(self) -> None:
        world = World()
        world.run(900, 600)
        # however many units there are, all together do 1,000
        for _ in range(60):
            world.run(2000, 10, works=10 / world.units)
        assert "no effect" in world.why[-1]
        size = world.units
        world.run(2000, 600, works=10 / size)
        assert world.units == size

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            (ElasticOptions(enabled=False), "paused"),
            (ElasticOptions(advise_only=True), "advice only"),
            (ElasticOptions(excluded_hours=(0, 1)), "is excluded"),
        ],
    )
    def test_what_forbids_a_change_is_said_with_what_would_be(self, options: ElasticOptions, why: str) -> None:
        world = World(options)
        world.run(900, 600)
        world.run(2700, 60)
        assert world.units == 10
        assert why in world.why[-1]
        assert "else: tuples" in world.why[-1]

    def test_a_veto_is_obeyed(self) -> None:
        world = World()
        world.run(900, 600)
        world.run(2700, 60, veto=lambda verdict: "not today")
        assert world.units == 10
        assert "vetoed: not today" in world.why[-1]

    @given(st.lists(st.floats(0, 1e5), min_size=1, max_size=60), st.integers(1, 5), st.integers(5, 40))
    def test_limits_hold_whatever_the_load(self, rates: list[float], minimum: int, maximum: int) -> None:
        world = World(units=minimum, bounds=Bounds(minimum, maximum))
        for rate in rates:
            world.run(rate, 60)
            assert minimum <= world.units <= maximum
