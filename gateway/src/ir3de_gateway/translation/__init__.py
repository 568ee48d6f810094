"""Anthropic's messages and OpenAI's chats, each as the other: requests, answers, streams and errors.

Each function is pure: values of one format go in, values of the other come out. `translation.py` says which of them
belong together; nothing here knows of HTTP or of routing.
"""
