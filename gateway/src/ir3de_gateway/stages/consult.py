"""The second opinion of the router's encoder: in threads of its own, and only until a deadline.

The event loop decides by the table. If that is unsure, a thread shows the prompt to the encoder. After the deadline
the table's decision stands; a prompt whose turn has not come by then is not encoded at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from ir3de.serving import count_cores
from ir3de_gateway.stages.choice import Routed

if TYPE_CHECKING:
    from ir3de import Router

Consultation = Literal["consulted", "late", "missing", "failed"]

_log = logging.getLogger("ir3de.gateway")


def is_unsure(router: Router, routed: Routed) -> bool:
    """Whether the router's encoder would be asked about this prompt."""
    opinion, confidence = router.opinion, routed.confidence
    return opinion is not None and confidence is not None and confidence < opinion.certainty


async def consult(
    routed: Routed, route: Callable[[], Routed], deadline_s: float, count: Callable[[Consultation], None]
) -> Routed:
    """The decision after the encoder was asked, which `route` gives; the table's own where that takes too long."""
    started, before = perf_counter(), routed.seconds
    asked = asyncio.get_running_loop().run_in_executor(_start_threads(), route)
    try:
        found = await asyncio.wait_for(asked, deadline_s)
    except TimeoutError:
        count("late")
    except Exception as error:  # whatever the encoder raises, there is a decision already
        count("failed")
        _log.warning("the router's encoder failed, the table decides: %s", error)
    else:
        count("consulted" if found.decision.consulted else "missing")
        routed = found
    return routed._replace(seconds=before + perf_counter() - started)


@lru_cache(maxsize=1)
def _start_threads() -> ThreadPoolExecutor:
    """Half of the cores: the others are for the event loops."""
    return ThreadPoolExecutor(max(1, count_cores() // 2), thread_name_prefix="ir3de-encoder")
