"""Receives requests: the filter in front of uvicorn, connections and their limit, and the supervisor of workers."""
