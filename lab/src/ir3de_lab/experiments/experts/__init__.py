"""Experts: language models loaded, fine-tuned a domain each, and asked. All of it needs torch and transformers."""
