"""`ir3de bench …`: every measurement of the laboratory as a command, plugged into `ir3de` by an entry point."""

from ir3de_lab.cli import (
    big,
    change_costs,
    changes,
    confidence,
    conversations,
    defaults,
    experiments,
    experts,
    figures,
    gateway,
    languages,
    novelty,
    outcome_routing,
    privacy,
    robustness,
    run,
    scale,
    strong_weak,
    tables,
    trust,
    unknowns,
)
from ir3de_lab.cli.bench import bench

__all__ = ["bench"]

for _command in (
    defaults.defaults,
    robustness.robustness,
    experts.experts,
    change_costs.change_costs,
    big.big,
    scale.scale,
    novelty.novelty,
    unknowns.unknowns,
    languages.languages,
    confidence.confidence,
    conversations.conversations,
    privacy.privacy,
    outcome_routing.outcome_routing,
    strong_weak.strong_weak,
    gateway.gateway,
    gateway.limits,
    gateway.soak,
    gateway.versions,
    trust.trust,
    experiments.train,
    experiments.outcomes,
    run.run,
    changes.dynamic,
    changes.decentralised,
    tables.tables,
    figures.figures,
):
    bench.add_command(_command)
