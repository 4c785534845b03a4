"""Plans executed in simulated time.

The input is a `Scenario` (`system`): a cluster, pipelines on it, and events. Plans become pipelines of a scenario in
`from_plan`. `engine.simulate_scenario` answers with an `Outcome` (`outcome`).

The parts:

- A *station* is the threads of one operator on one slot, with one queue, first in first out. k threads together have
  the rate of the model, so a tuple takes a thread `k / I(k)` seconds. With constant service tuple n of a station goes
  to thread n mod k: that equals one shared queue, because threads with equal times finish in the order they began.
  With exponential service the thread that is free first takes the next tuple.
- If a stream is dealt to threads (fields, partial-key, direct), every thread has a queue of its own.
- A *route* is a stream with all that the simulation needs. Dealing is deterministic and belongs to the
  stream as a whole: its tuples in order of time (ties: the station declared first) go to the slots by a fixed pattern
  that keeps every slot within one tuple of its share.
- Times are whole nanoseconds. So sums have no rounding, and both engines give the same numbers, tuple by tuple.

Two engines give one answer. Without feedback (`arrays`), time is cut into windows: operators in topological order take
all arrivals of the window, and completions come from running maxima over arrays, without an event per tuple. `events`
has a heap of events, for closed loops, bounded queues, links of bounded bandwidth, and replays.

The processor is shared window by window (`contention`): a slot with more demand for CPU than it has in one window is
slower by that factor in the next.
"""
