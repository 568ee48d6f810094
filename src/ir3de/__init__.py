"""IR3DE: a linear, closed-form, explainable router for domain-expert LLMs."""
