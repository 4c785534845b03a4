"""Deploying to a target (003): rounds of monitor, analyse, plan, execute until so many tuples/s are done within so many
milliseconds on no more than so many nodes.

    plan ──► execute ──► monitor ──► analyse ──► met? the same plan? over budget? out of rounds? ──► stop, with the
    reason ▲                                              │ no
      └────────── unit costs raised by a planner ◄───┘

    values      what is handed from stage to stage       planners    how unit costs are raised: published, measured
    analyse     whether it is met, and what is short     costs       models with raised unit costs
    rounds      the loop; it knows neither Spark nor a simulator: plans and readings come from functions it is given
"""
