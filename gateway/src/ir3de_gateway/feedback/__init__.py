"""The journal of a gateway: what it keeps of routed requests, and the feedback on them."""
