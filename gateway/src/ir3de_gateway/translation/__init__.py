"""Anthropic's messages and OpenAI's chats, each as the other: requests, answers, streams and errors.

The functions are pure: values of one format go in, values of the other come out. `translation.py` combines them;
nothing else here knows HTTP or routing.
"""
