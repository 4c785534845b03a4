"""How many units a pipeline should have now: pure, (what is remembered, what is observed, the time) in, a verdict out.

    readings ──► smooth ──► what is needed, now and soon ──► is it worth a change? ──► limits ──► verdict with reasons
                 level,      models as learned, forecast,     catch-up time; waste so      minimum, maximum, hours,
                 spread      backlog and catch-up             far against a change's cost  pause, veto, advice only

Nothing here knows Spark, a store or a clock: the live controller, the simulated one, and the experiment that judges
controllers over days of load all call `follow.decide` with the same values. One decision is one re-plan from the models
to the size that will last, never a walk of small steps.

    options     what can be set, with defaults          smoothing   level and spread of the load
    memory      what is remembered between decisions    catch_up    backlog, and how long it will last
    forecasts   what the load will be, by name          waiting     cool-downs, doubling waits, cost of a change
    limits      what nothing may exceed                 effect      whether the last change did anything
    follow      the decision                            verdict     what comes out
"""
