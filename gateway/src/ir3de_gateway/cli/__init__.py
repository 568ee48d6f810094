"""The commands that the gateway adds to `ir3de`: serve, config, keys and router."""
