"""The planner: what is searched (`space`), bounds (`stacked`, `pace`, `screen`, `limits`), the search, plans ranked and proven."""
