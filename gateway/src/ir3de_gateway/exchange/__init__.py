"""One request's way through the gateway: read, choose, ask, relay, record."""
