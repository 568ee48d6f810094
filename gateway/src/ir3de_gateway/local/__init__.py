"""Experts on this machine: GGUF files served by llama.cpp, and a whole gateway to try out. docs/local-experts.md."""

from ir3de_gateway.local.llama_cpp import demo, local_model

__all__ = ["demo", "local_model"]
