"""The upstreams: the live snapshot, circuit breakers, concurrency limits and connections."""
