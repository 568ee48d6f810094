"""The gateway beside a bare proxy and the upstream itself, on loopback: what it adds, and whether it holds."""
