"""How an answer says who gave it, and why: headers, and a field `ir3de` of the body."""

from __future__ import annotations

import json
from functools import lru_cache
from urllib.parse import quote

from ir3de.gateway.controls import FIELD
from ir3de.gateway.records import Record

HEADERS = (
    "x-ir3de-expert",
    "x-ir3de-model",
    "x-ir3de-confidence",
    "x-ir3de-margin",
    "x-ir3de-router",
    "x-ir3de-route-us",
    "x-ir3de-fallbacks",
    "x-ir3de-why",
    "x-request-id",
)


def provenance_headers(record: Record) -> list[tuple[bytes, bytes]]:
    """Who answered, how sure the router was, how long that took, who was asked before."""
    found = [
        (b"x-ir3de-expert", _header(record.expert)),
        (b"x-ir3de-model", _header(record.model)),
        (b"x-ir3de-router", record.router[:16].encode()),
        (b"x-ir3de-fallbacks", str(len(record.fallbacks)).encode()),
    ]
    if record.decision is not None:
        found += [
            (b"x-ir3de-confidence", b"%.4f" % record.decision.confidence),
            (b"x-ir3de-margin", b"%.4f" % record.decision.margin),
            (b"x-ir3de-route-us", b"%.1f" % ((record.route_seconds or 0.0) * 1e6)),
        ]
    if record.why:
        found.append((b"x-ir3de-why", _header(record.why)))
    return found


def provenance_member(record: Record) -> bytes:
    """The same as a member of a JSON object, since clients' libraries hide headers."""
    said: dict[str, object] = {"expert": record.expert, "model": record.model, "router": record.router[:16]}
    if (decision := record.decision) is not None:
        said |= {
            "decided": decision.expert,
            "confidence": round(decision.confidence, 4),
            "margin": round(decision.margin, 4),
            "abstained": decision.abstained,
            "route_us": round((record.route_seconds or 0.0) * 1e6, 1),
        }
    said["why"] = record.why or "routed"
    said["fallbacks"] = [{"from": one, "to": other, "reason": reason} for one, other, reason in record.fallbacks]
    said["request_id"] = record.request_id
    return f'"{FIELD}":{json.dumps(said, separators=(",", ":"))}'.encode()


@lru_cache(maxsize=4096)
def _header(value: str) -> bytes:
    """A name as a header may carry it: others than ASCII as %C3%A4."""
    return quote(value, safe=" !#$&'()*+,/:;=?@[]~").encode()
