"""Endpoints that are passed through by name: files, batches, images, audio, rerank, moderations, stored responses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ir3de.serving import Turn
from ir3de_gateway.wire.formats import Capability, WireFormat

ObjectKind = Literal["response", "file", "batch"]  # what experts store for later requests
is_object_id = re.compile(r"(?!\.)[A-Za-z0-9._:~-]{1,256}").fullmatch  # it becomes a part of a path


@dataclass(frozen=True)
class PassthroughFormat(WireFormat):
    """One method of one path. Requests and answers pass unread, but for the model and the ids of stored objects."""

    method: str = field()
    path: str  # below /v1/; {id} stands for the id of a stored object
    capability: Capability
    summary: str  # for the OpenAPI document
    body: Literal["json", "form", "none"] = "json"
    has_model: bool = True  # otherwise a field `model` names the expert, and is not forwarded
    finds: ObjectKind | None = None  # the id in the path is of such an object
    makes: ObjectKind | None = None  # the answer is such an object, or a list of them
    also_at: str = ""  # another path of the gateway for the same

    can_stream = is_sampled = False
    is_opaque = True
    is_charged = False

    def with_id(self, object_id: str) -> PassthroughFormat:
        """The path of one object."""
        return replace(self, path=self.path.replace("{id}", object_id))

    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        return []

    def is_repeatable(self, values: Mapping[str, Any]) -> bool:
        """Not if it stores or cancels an object."""
        return self.method == "GET" or (self.makes is None and self.finds is None)

    @property
    def is_hedged(self) -> bool:  # type: ignore[override]
        """Images and speech are too expensive to make twice."""
        return self.capability not in ("images", "audio_speech")

    @property
    def counts_usage(self) -> bool:
        """Whether an answer's usage is that of this request. Stored objects have the usage of earlier ones."""
        return self.finds is None and self.makes is None


def _list_formats() -> list[PassthroughFormat]:
    post, get, delete = "POST", "GET", "DELETE"
    form = PassthroughFormat
    response: dict[str, Any] = {"body": "none", "finds": "response"}
    file: dict[str, Any] = {"body": "none", "finds": "file", "has_model": False}
    batch: dict[str, Any] = {"body": "none", "finds": "batch", "has_model": False}
    return [
        form(get, "responses/{id}", "responses", "A stored response; with `stream=true` as a stream.", **response),
        form(delete, "responses/{id}", "responses", "Delete a stored response.", **response),
        form(post, "responses/{id}/cancel", "responses", "Cancel a response in the background.", **response),
        form(get, "responses/{id}/input_items", "responses", "The input of a stored response.", **response),
        form(post, "images/generations", "images", "Generate images."),
        form(post, "images/edits", "images", "Edit images.", "form"),
        form(post, "images/variations", "images", "Generate variations of an image.", "form"),
        form(post, "audio/speech", "audio_speech", "Generate speech from a text."),
        form(post, "audio/transcriptions", "audio_transcriptions", "Transcribe audio.", "form"),
        form(post, "audio/translations", "audio_translations", "Transcribe audio in English.", "form"),
        form(post, "rerank", "rerank", "Sort documents by relevance to a query.", also_at="/v2/rerank"),
        form(post, "moderations", "moderations", "Classify texts as harmful or not."),
        form(post, "files", "files", "Upload a file.", "form", has_model=False, makes="file"),
        form(get, "files", "files", "The key's own files.", "none", has_model=False, makes="file"),
        form(get, "files/{id}", "files", "One file.", makes="file", **file),
        form(delete, "files/{id}", "files", "Delete a file.", **file),
        form(get, "files/{id}/content", "files", "The content of a file.", **file),
        form(post, "batches", "batches", "Start a batch, where its file is.", has_model=False, makes="batch"),
        form(get, "batches", "batches", "The key's own batches.", "none", has_model=False, makes="batch"),
        form(get, "batches/{id}", "batches", "One batch.", makes="batch", **batch),
        form(post, "batches/{id}/cancel", "batches", "Cancel a batch.", makes="batch", **batch),
    ]


PASSTHROUGH_FORMATS = tuple(_list_formats())
