"""The engine loops: plain Python over arrays, which `calc.simulation.compiled` turns into machine code.

Run as they stand they are the reference; compiled they are the product. Nothing here allocates per request: all
memory is in the named tuples of `layout`, so that a run can stop after any pass and go on later.
"""
