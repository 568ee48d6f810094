"""The command that makes each file of results/, and the page of docs/ that shows it."""

from __future__ import annotations

COMMANDS = {  # every raw file beside the settings: what makes it, and the page that shows it
    "accuracy.json": ("ir3de bench accuracy --data DIR --save results/accuracy.json", "benchmarks.md"),
    "affinity.json": ("ir3de bench affinity --save results/affinity.json", "replicas.md"),
    "agents.json": (
        "ir3de bench agents --data DIR --traces 40 --choose --save results/agents.json",
        "conversations.md",
    ),
    "alternatives.json": (
        "ir3de bench alternatives --data DIR --encoder FOLDER --environments DIR --answers DIR "
        "--save results/alternatives.json",
        "why-not.md",
    ),
    "alternatives_speed.json": (
        "ir3de bench alternatives --data DIR --only banking77 --environments DIR --answers DIR --only-times "
        '--router ir3de --router fastText --router "scikit-learn, TF-IDF + logistic regression" '
        "--save results/alternatives_speed.json",
        "why-not.md",
    ),
    "big.json": ("ir3de bench big --save results/big.json", "benchmarks.md"),
    "big_cuda.json": ("ir3de bench big --device cuda --save results/big_cuda.json", "benchmarks.md"),
    "chats.json": ("ir3de bench chats --data DIR --save results/chats.json", "conversations.md"),
    "cold_start.json": (
        "ir3de bench cold-start --data DIR --save results/cold_start.json",
        "few-prompts.md",
    ),
    "cold_start_encoder.json": (
        "ir3de encoder install minilm-l6; ir3de bench cold-start --data DIR --save results/cold_start_encoder.json",
        "few-prompts.md",
    ),
    "confidence.json": ("ir3de bench confidence --data DIR --save results/confidence.json", "confidence.md"),
    "conversations.json": (
        "ir3de bench conversations --data DIR --choose --save results/conversations.json",
        "conversations.md",
    ),
    "defaults.json": ("ir3de bench defaults --data DIR --save results/defaults.json", "scorers.md"),
    "experts.json": ("ir3de bench experts --data DIR --save results/experts.json", "benchmarks.md"),
    "gateway.json": ("ir3de bench gateway --save results/gateway.json", "benchmarks.md"),
    "keys.json": ("ir3de bench keys --save results/keys.json", "keys.md"),
    "shared_keys.json": (
        "ir3de bench keys --machines 3 --store redis://127.0.0.1:6379/0 --save results/shared_keys.json",
        "shared-state.md",
    ),
    "store.json": ("python scripts/measure_store.py results/store.json", "keys.md"),
    "envoy.json": ("ir3de bench envoy --save results/envoy.json", "envoy.md"),
    "workers.json": ("ir3de bench workers --save results/workers.json", "scaling.md"),
    "store_load.json": (
        "ir3de bench store-load --store redis://127.0.0.1:6379/0 --save results/store_load.json",
        "scaling.md",
    ),
    "limits.json": ("ir3de bench limits --save results/limits.json", "benchmarks.md"),
    "translation.json": ("ir3de bench translation --save results/translation.json", "translation.md"),
    "transports.json": ("python -m ir3de_lab.benchmarks.transports --save results/transports.json", "transports.md"),
    "trust.json": ("ir3de bench trust --minutes 60 --save results/trust.json", "reliability.md"),
    "languages.json": ("ir3de bench languages --data DIR/sib200 --save results/languages.json", "languages.md"),
    "living_canary.json": ("ir3de bench living --data DIR --only canary --save results", "candidates.md"),
    "living_compare-speed.json": ("ir3de bench living --data DIR --only compare-speed --save results", "compare.md"),
    "living_cost.json": ("ir3de bench living --data DIR --only cost --save results", "feedback.md"),
    "living_coverage.json": ("ir3de bench living --data DIR --only coverage --save results", "compare.md"),
    "living_labels.json": ("ir3de bench living --data DIR --only labels --save results", "labelling.md"),
    "living_learning.json": ("ir3de bench living --data DIR --only learning --save results", "learning.md"),
    "living_poisoning.json": ("ir3de bench living --data DIR --only poisoning --save results", "learning.md"),
    "living_drift.json": ("ir3de bench living --data DIR --only drift --save results", "drift.md"),
    "living_scores.json": ("ir3de bench living --data DIR --only scores --save results", "learning.md"),
    "unknowns.json": ("ir3de bench unknowns --data DIR --save results/unknowns.json", "confidence.md"),
    "novelty.json": ("ir3de bench novelty --data DIR --save results/novelty.json", "confidence.md"),
    "outcome_routing.json": (
        "ir3de bench outcome-routing --data DIR --leave-out arc_easy --save results/outcome_routing.json",
        "outcomes.md",
    ),
    "privacy.json": ("ir3de bench privacy --data DIR --save results/privacy.json", "privacy.md"),
    "proof.json": ("ir3de bench proof --data DIR --save results/proof.json", "proof.md"),
    "replicas.json": ("ir3de bench replicas --save results/replicas.json", "replicas.md"),
    "reproduce.json": ("python lab/scripts/reproduce.py --run", "experiments.md"),
    "rivals.json": ("ir3de bench rivals --data DIR --encoder SOURCE --save results/rivals.json", "benchmarks.md"),
    "robustness.json": ("ir3de bench robustness --data DIR --save results/robustness.json", "benchmarks.md"),
    "robustness_before.json": ("the same command at commit 3f1cc50", "benchmarks.md"),
    "scale.json": ("ir3de bench scale --data DIR --save results/scale.json", "benchmarks.md"),
    "soak.json": ("ir3de bench soak --save results/soak.json", "benchmarks.md"),
    "speed.json": ("ir3de bench speed --data DIR --save results/speed.json", "benchmarks.md"),
    "versions.json": ("ir3de bench versions --before FOLDER --save results/versions.json", "benchmarks.md"),
    "strong_weak.json": ("ir3de bench strong-weak --data DIR --save results/strong_weak.json", "outcomes.md"),
}
