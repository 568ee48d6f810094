"""Requests: reading the body, the text to route, the controls, and the choice of an expert."""
