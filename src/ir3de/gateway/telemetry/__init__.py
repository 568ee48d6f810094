"""Everything that looks on: metrics, logs, traces and the last minutes of traffic."""
