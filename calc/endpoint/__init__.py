"""A measured endpoint: what one request showed, what many show together, and how that compares with the step model.

`samples` is the record of one request, `summary` the statistics of a run, `report` sets measured beside predicted,
`calibration` fits at most six scalars to it. All of it is pure: `probes.endpoint` measures, this package judges.
"""
