"""What a router saw in production: the journal of requests and feedback, and what can be learnt from it."""

from typing import TYPE_CHECKING

from ir3de.files.package import export_lazily

if TYPE_CHECKING:
    from ir3de.traffic.comparison import Comparison, compare
    from ir3de.traffic.decision_log import DecisionLog
    from ir3de.traffic.drift import Alarm, DriftMonitor, Observation, observe_record
    from ir3de.traffic.drift_report import describe_alarms
    from ir3de.traffic.journal import Journal
    from ir3de.traffic.labelling import PromptToLabel, choose_prompts, propose_labels
    from ir3de.traffic.learning import Forgetting, Learning, forget, learn
    from ir3de.traffic.new_domains import NewDomain, find_new_domains
    from ir3de.traffic.prices import Price, read_prices
    from ir3de.traffic.records import (
        ADMIN,
        LABEL_PREFIX,
        Feedback,
        JournalPrompt,
        TrafficRecord,
        list_authors,
        name_author,
    )
    from ir3de.traffic.score_learning import ScoreLearning, learn_scores
    from ir3de.traffic.selection import Selection
    from ir3de.traffic.sequential import SequentialTest, TrialReport, run_test
    from ir3de.traffic.sources import Source, SourcePattern
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "decision_log": "DecisionLog",
            "drift": "Alarm DriftMonitor Observation observe_record",
            "drift_report": "describe_alarms",
            "comparison": "Comparison compare",
            "journal": "Journal",
            "labelling": "PromptToLabel choose_prompts propose_labels",
            "learning": "Forgetting Learning forget learn",
            "prices": "Price read_prices",
            "new_domains": "NewDomain find_new_domains",
            "records": "ADMIN LABEL_PREFIX Feedback JournalPrompt TrafficRecord list_authors name_author",
            "score_learning": "ScoreLearning learn_scores",
            "selection": "Selection",
            "sequential": "SequentialTest TrialReport run_test",
            "sources": "Source SourcePattern",
        },
    )

__all__ = [
    "ADMIN",
    "LABEL_PREFIX",
    "Alarm",
    "Comparison",
    "DecisionLog",
    "DriftMonitor",
    "Feedback",
    "Forgetting",
    "Journal",
    "JournalPrompt",
    "Learning",
    "NewDomain",
    "Observation",
    "Price",
    "PromptToLabel",
    "ScoreLearning",
    "Selection",
    "SequentialTest",
    "Source",
    "SourcePattern",
    "TrafficRecord",
    "TrialReport",
    "choose_prompts",
    "compare",
    "describe_alarms",
    "find_new_domains",
    "forget",
    "learn",
    "learn_scores",
    "list_authors",
    "name_author",
    "observe_record",
    "propose_labels",
    "read_prices",
    "run_test",
]
