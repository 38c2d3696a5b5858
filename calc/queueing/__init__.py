"""Queues in closed form: what waiting costs, at once; `calc.simulation` confirms it with percentiles."""
