"""Serving under load: engine loops over arrays, a million requests in seconds. `run.simulate` is the way in."""
