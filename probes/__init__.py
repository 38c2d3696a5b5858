"""What measures: probes on the user's own hardware and load tests of running endpoints."""
