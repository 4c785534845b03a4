"""Models corrected by what runs. The profiled model stays as it is; what is learned stands beside it with its time and
spread, and whoever decides says which one was used.

    learned     one figure learned from readings: value, spread, how many, when
    parts       true processing rates of operators, memory of slots
    drift       when what is learned has left what it was: the code or the data changed
"""
