"""The paper's experiments, end to end: settings, experts, outcomes, routers, tables and figures."""
