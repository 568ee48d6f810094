"""What receives requests: the filter in front of uvicorn, the limit of connections, and the supervisor of workers."""
