"""The laboratory of IR3DE: benchmarks, rival routers, the paper's experiments, figures and pages."""
