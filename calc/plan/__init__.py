"""The planner: what is searched (`space`), bounds (`stacked`, `pace`, `screen`), the search, and plans ranked (`ranking`)."""
