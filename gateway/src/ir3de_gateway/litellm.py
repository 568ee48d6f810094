"""A plug-in for LiteLLM's proxy: requests for the model `auto` go to the model group of the expert that is decided.

LiteLLM's configuration has all settings:

    litellm_settings: {callbacks: [ir3de_gateway.litellm.router]}
    callback_settings: {ir3de: {router: /models/router, models: {law: llama-law-8b}}}
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Mapping
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from litellm.integrations.custom_logger import CustomLogger
from pydantic import Field

from ir3de.errors import InputError, name_some
from ir3de_gateway.api_errors import ApiError, validate
from ir3de_gateway.config.document import FeedbackConfig
from ir3de_gateway.config.experts import RESERVED, Part
from ir3de_gateway.integrations.decider import Decider, Settings, Verdict, build_error_headers
from ir3de_gateway.integrations.litellm_journal import LiteLLMJournal
from ir3de_gateway.wire import FORMATS

if TYPE_CHECKING:
    from litellm.proxy._types import UserAPIKeyAuth

NAME = "ir3de"  # of the settings, and of what is added to the metadata of a request
RELOAD_CHECK_S = 10.0  # between two looks for a new router
PATHS = {  # LiteLLM's types of calls, and the APIs of their requests
    "acompletion": "chat/completions", "completion": "chat/completions", "atext_completion": "completions",
    "text_completion": "completions", "aresponses": "responses", "responses": "responses",
    "anthropic_messages": "messages", "aanthropic_messages": "messages",
}  # fmt: skip

_log = logging.getLogger("ir3de.gateway")


class PluginSettings(Part):
    """The section `callback_settings.ir3de` of LiteLLM's configuration."""

    router: str
    """The folder with the router."""
    models: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it
    """The model group of each expert that has another name than its model group."""
    default: str | None = None
    """The expert where the router abstains, instead of the router's own."""
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    """Abstain below this confidence."""
    also_route: list[str] = []  # noqa: RUF012
    """Models that ask for routing, besides `auto`."""
    closed: bool = False
    """Refuse requests that cannot be routed. Otherwise they go to the model group of `default`, if there is one."""
    feedback: FeedbackConfig = FeedbackConfig()
    """The journal: routed requests, for feedback on them. Nothing is kept unless a folder is named."""


class RouterPlugin(CustomLogger):  # type: ignore[misc]
    """LiteLLM calls it before and after each request of the proxy."""

    def __init__(self, settings: PluginSettings) -> None:
        super().__init__()
        names = frozenset((*RESERVED, *settings.also_route))
        decided = Settings(settings.models, settings.default, settings.threshold, names)
        self._settings, self._decider = settings, Decider(settings.router, decided)
        self._journal = None if settings.feedback.folder is None else LiteLLMJournal(settings.feedback)
        if self._journal is not None:
            atexit.register(self._journal.close)
        self._checked = monotonic()
        self._reloading: asyncio.Task[bool] | None = None  # kept, or it may be collected
        _log.info("LiteLLM routes by %s: %s", settings.router, ", ".join(self._decider.experts))

    async def async_pre_call_hook(
        self, user_api_key_dict: UserAPIKeyAuth, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any] | None:
        """Replace the model of a request that asks for routing."""
        path = PATHS.get(call_type)
        if path is None or not self._decider.wants(data):
            return None
        self._look_for_new_router()
        try:
            verdict = await self._decider.decide(FORMATS[path], data)
            group = self._find_group(verdict)
            headers, signal = verdict.list_headers(), verdict.signal
            if self._journal is not None:
                self._journal.begin(str(data.get("litellm_call_id") or ""), verdict, self._decider.router)
        except ApiError as error:
            group = self._find_fallback(error)
            headers, signal = build_error_headers(error), {"error": error.message}
        data["model"] = group
        # in responses and messages, `metadata` is the client's and is sent to the model
        kept = data.setdefault("litellm_metadata" if "litellm_metadata" in data else "metadata", {})
        kept[NAME] = signal | {"model": group}
        kept[f"{NAME}_headers"] = {name: value.decode() for name, value in headers}
        return data

    async def async_post_call_response_headers_hook(
        self, data: dict[str, Any], user_api_key_dict: UserAPIKeyAuth, response: object, *_: object, **more: object
    ) -> dict[str, str] | None:
        """The headers of an answer that name the expert, and why."""
        for name in ("litellm_metadata", "metadata"):
            kept = data.get(name)
            if isinstance(kept, Mapping) and f"{NAME}_headers" in kept:
                return dict(kept[f"{NAME}_headers"])
        return None

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: object, start_time: datetime, end_time: datetime
    ) -> None:
        """Keep a request that was answered, if there is a journal."""
        if self._journal is not None:
            self._journal.end(kwargs, response_obj, start_time, end_time)

    async_log_failure_event = async_log_success_event

    def _find_group(self, verdict: Verdict) -> str:
        """The model group of the decided expert, or an `ApiError`."""
        if verdict.model is None:
            raise ApiError(
                422, "no token of the prompt is known, and no default expert is set", "out_of_domain", "model"
            )
        groups = list_groups()
        if groups and verdict.model not in groups:
            message = (
                f"the expert {verdict.expert!r} has no model group: LiteLLM's model_list has {name_some(groups)}. Name "
                f"one of them in callback_settings.{NAME}.models"
            )
            raise ApiError(400, message, "model_not_found", "model")
        return verdict.model

    def _find_fallback(self, error: ApiError) -> str:
        default = self._settings.default
        if self._settings.closed or default is None:
            raise build_http_error(error) from error
        return self._settings.models.get(default, default)

    def _look_for_new_router(self) -> None:
        if monotonic() - self._checked >= RELOAD_CHECK_S:
            self._checked = monotonic()
            self._reloading = asyncio.create_task(self._decider.reload())


def list_groups() -> list[str]:
    """The model groups of the running proxy."""
    from litellm.proxy import proxy_server

    found = proxy_server.llm_router
    return [] if found is None else list(found.get_model_names())


def build_http_error(error: ApiError) -> Exception:
    """The error as LiteLLM's proxy sends it to clients."""
    from litellm.proxy._types import ProxyException

    kind, code = error.fields["type"], error.status
    found: Exception = ProxyException(message=error.message, type=kind, param=error.param or "None", code=code)
    return found


def create_plugin() -> RouterPlugin:
    """The plug-in with the settings of LiteLLM's configuration, which is read before its callbacks are."""
    import litellm

    given = litellm.callback_settings.get(NAME)
    if given is None:
        message = f"LiteLLM's configuration has no section callback_settings.{NAME}: name the router's folder there"
        raise InputError(message)
    try:
        settings = validate(PluginSettings, given, f"callback_settings.{NAME}", status=400, shows_found=True)
    except ApiError as error:
        raise InputError(error.message) from None
    return RouterPlugin(settings)


def __getattr__(name: str) -> RouterPlugin:
    """`router`, the callback, is made when LiteLLM asks for it."""
    if name != "router":
        raise AttributeError(name)
    found = globals()["router"] = create_plugin()
    return found
