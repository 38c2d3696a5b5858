"""What a model keeps in memory beside its weights: the logical cache and state, and each engine's ledger."""
