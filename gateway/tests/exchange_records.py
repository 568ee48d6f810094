"""Records as the gateway fills them, and something live for observers to look at."""

from functools import cache
from pathlib import Path
from typing import Any

from ir3de import Router
from ir3de.routing.decision import Decision
from ir3de_gateway.config.document import Config, Logs, RouterConfig
from ir3de_gateway.config.experts import ExpertConfig, Price
from ir3de_gateway.exchange_record import ExchangeRecord
from ir3de_gateway.experts.snapshot import LiveSnapshot, Snapshot

EXPERTS = ("maths", "law")


@cache
def router() -> Router:
    return Router.fit({"maths": ["Solve x + 3 = 10.", "What is 12 times 7?"], "law": ["Is this contract void?"]})


def live(logs: Logs | None = None) -> LiveSnapshot:
    price = Price(input_per_1m=1.0, output_per_1m=2.0)
    experts = tuple(ExpertConfig(name=name, base_url="http://127.0.0.1:9/v1", price=price) for name in EXPERTS)
    config = Config(router=RouterConfig(path="router"), experts=experts, logs=logs or Logs(access=None))
    return LiveSnapshot(Snapshot.from_config(config, router(), "d" * 64))


def decided(text: str = "Is the contract void?") -> Decision:
    return router().route(text)


def record(**fields: Any) -> ExchangeRecord:
    """A request that went well, but for what is said."""
    usual: dict[str, Any] = {
        "asked": "auto",
        "decision": decided(),
        "router": "d" * 64,
        "expert": "law",
        "model": "law-7b",
        "status": 200,
        "route_seconds": 30e-6,
        "upstream_seconds": 0.4,
        "first_seconds": 0.1,
        "total_seconds": 0.5,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cost": 20e-6,
    }
    filled = {**usual, **fields}
    if (decision := filled["decision"]) is not None:
        filled = {"confidence": decision.confidence, "margin": decision.margin, **filled}
    return ExchangeRecord("request-1", "chat", **filled)


def log_paths(folder: Path, *, prompts: bool = False) -> Logs:
    return Logs(access=str(folder / "access.jsonl"), decisions=str(folder / "decisions.jsonl"), prompts=prompts)
