"""Hooks for guardrails and redaction: Python callables or HTTP calls before a request and after its answer."""
