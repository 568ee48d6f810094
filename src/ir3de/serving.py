"""What a server in front of a router needs: chats as turns, saved routers, atomic files and addresses.

The gateway imports these names, the rest of the public surface, and nothing else of this package.

>>> from ir3de.serving import parse_messages
>>> [turn.text for turn in parse_messages([{"role": "user", "content": "Is this contract void?"}])]
['Is this contract void?']
"""

from __future__ import annotations

from ir3de import files
from ir3de.files.package import export_lazily

TYPE_CHECKING = False  # see `files.package`
if TYPE_CHECKING:
    from ir3de.errors import name_extra
    from ir3de.files.atomic import count_cores, find_kind
    from ir3de.files.database import PAGE_BYTES, WRITE_WAIT_S, close_with, open_database
    from ir3de.files.remote import check_scheme, get_scheme, hide_secrets, hide_user, open_fsspec
    from ir3de.files.router_folder import (
        ROUTER_HEADER_FILE,
        holds_router,
        holds_statistics,
        inspect_router,
        is_ours,
        list_routing_parts,
        parse_header,
        read_expert_names,
        read_header,
        read_header_file,
        stamp,
    )
    from ir3de.files.streams import limit_expansion
    from ir3de.fitting.domains import ScorerChoice
    from ir3de.fitting.loading import load_described
    from ir3de.routing.colours import write_variables
    from ir3de.routing.explanation import Explanation
    from ir3de.routing.messages import (
        END_CHARS,
        ENVELOPES,
        MAX_TURN_CHARS,
        MIN_PASTE_CHARS,
        MessageError,
        Turn,
        build_type_error,
        compile_envelopes,
        find_envelope_mark,
        parse_message,
        parse_messages,
        shorten_turn,
        split_paste,
    )
    from ir3de.routing.turn_explanation import TurnExplanation, TurnReason
    from ir3de.scorers.registry import SCORERS
else:
    __getattr__, _list = export_lazily(
        __name__,
        {
            "errors": "name_extra",
            "files.atomic": "count_cores find_kind",
            "files.database": "PAGE_BYTES WRITE_WAIT_S close_with open_database",
            "files.remote": "check_scheme get_scheme hide_secrets hide_user open_fsspec",
            "files.router_folder": "ROUTER_HEADER_FILE holds_router holds_statistics inspect_router is_ours "
            "list_routing_parts parse_header read_expert_names read_header read_header_file stamp",
            "files.streams": "limit_expansion",
            "fitting.loading": "load_described",
            "fitting.domains": "ScorerChoice",
            "routing.colours": "write_variables",
            "routing.explanation": "Explanation",
            "routing.messages": "ENVELOPES MessageError Turn build_type_error compile_envelopes find_envelope_mark "
            "parse_message parse_messages END_CHARS MAX_TURN_CHARS MIN_PASTE_CHARS shorten_turn split_paste",
            "routing.turn_explanation": "TurnExplanation TurnReason",
            "scorers.registry": "SCORERS",
        },
        within="ir3de",
    )

    def __dir__() -> list[str]:
        return sorted([*_list(), "export_lazily", "files"])


__all__ = [
    "END_CHARS", "ENVELOPES", "MAX_TURN_CHARS", "MIN_PASTE_CHARS", "PAGE_BYTES", "ROUTER_HEADER_FILE", "SCORERS",
    "WRITE_WAIT_S", "Explanation", "MessageError", "ScorerChoice", "Turn", "TurnExplanation", "TurnReason",
    "build_type_error", "check_scheme", "close_with", "compile_envelopes", "count_cores", "export_lazily", "files",
    "find_envelope_mark", "find_kind", "get_scheme", "hide_secrets", "hide_user", "holds_router",
    "holds_statistics", "inspect_router", "is_ours", "limit_expansion", "list_routing_parts", "load_described",
    "name_extra", "open_database", "open_fsspec", "parse_header", "parse_message", "parse_messages",
    "read_expert_names", "read_header", "read_header_file", "shorten_turn", "split_paste", "stamp", "write_variables",
]  # fmt: skip
