"""Where inputs come from: accelerators, prices, models, the hub, files; data with source and date."""
