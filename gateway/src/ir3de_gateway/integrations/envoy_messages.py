"""The messages of Envoy's external processing, version 3: the fields that are read or written here, with their numbers.

Names and numbers are those of envoy/service/ext_proc/v3/external_processor.proto and of what it imports; fields that
are not named pass unread. An enumeration is a number in such a message. The package `xds-protos` has all of Envoy's
messages, but also a package `opentelemetry` that hides OpenTelemetry's own, so both cannot be installed together.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, message_factory, struct_pb2
from google.protobuf.descriptor_pool import DescriptorPool

PACKAGE = "ir3de.envoy"  # Envoy never sees it: messages have no names on the wire
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"

# the mode in which Envoy sends bodies
NONE, STREAMED, BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX_STREAMED = range(5)
MODES = ("NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED")
OVERWRITE_IF_EXISTS_OR_ADD = 2  # what happens to a header that is there already

_FIELDS: dict[str, dict[str, tuple[int, str]]] = {  # + before a type: repeated; | : one of these
    "HeaderValue": {"key": (1, "string"), "value": (2, "string"), "raw_value": (3, "bytes")},
    "HeaderMap": {"headers": (1, "+HeaderValue")},
    "HttpHeaders": {"headers": (1, "HeaderMap"), "end_of_stream": (3, "bool")},
    "HttpBody": {"body": (1, "bytes"), "end_of_stream": (2, "bool")},
    "HttpTrailers": {"trailers": (1, "HeaderMap")},
    "ProtocolConfiguration": {"request_body_mode": (1, "int32"), "response_body_mode": (2, "int32")},
    "ProcessingRequest": {
        "request_headers": (2, "|HttpHeaders"), "response_headers": (3, "|HttpHeaders"),
        "request_body": (4, "|HttpBody"), "response_body": (5, "|HttpBody"),
        "request_trailers": (6, "|HttpTrailers"), "response_trailers": (7, "|HttpTrailers"),
        "protocol_config": (11, "ProtocolConfiguration"),
    },
    "HeaderValueOption": {"header": (1, "HeaderValue"), "append_action": (3, "int32")},
    "HeaderMutation": {"set_headers": (1, "+HeaderValueOption"), "remove_headers": (2, "+string")},
    "StreamedBodyResponse": {"body": (1, "bytes"), "end_of_stream": (2, "bool")},
    "BodyMutation": {"body": (1, "|bytes"), "streamed_response": (3, "|StreamedBodyResponse")},
    "CommonResponse": {
        "header_mutation": (2, "HeaderMutation"), "body_mutation": (3, "BodyMutation"),
        "clear_route_cache": (5, "bool"),
    },
    "HeadersResponse": {"response": (1, "CommonResponse")},
    "BodyResponse": {"response": (1, "CommonResponse")},
    "TrailersResponse": {"header_mutation": (1, "HeaderMutation")},
    "HttpStatus": {"code": (1, "int32")},
    "ImmediateResponse": {
        "status": (1, "HttpStatus"), "headers": (2, "HeaderMutation"), "body": (3, "bytes"), "details": (5, "string"),
    },
    "ProcessingResponse": {
        "request_headers": (1, "|HeadersResponse"), "response_headers": (2, "|HeadersResponse"),
        "request_body": (3, "|BodyResponse"), "response_body": (4, "|BodyResponse"),
        "request_trailers": (5, "|TrailersResponse"), "response_trailers": (6, "|TrailersResponse"),
        "immediate_response": (7, "|ImmediateResponse"), "dynamic_metadata": (8, "google.protobuf.Struct"),
    },
}  # fmt: skip


def _describe() -> descriptor_pb2.FileDescriptorProto:
    """All messages in the form that protobuf reads."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="ir3de/envoy.proto", package=PACKAGE, syntax="proto3", dependency=["google/protobuf/struct.proto"]
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, given) in fields.items():
            kind, label = given.lstrip("+|"), kinds.LABEL_REPEATED if given[0] == "+" else kinds.LABEL_OPTIONAL
            made = message.field.add(name=field, number=number, label=label)
            if given[0] == "|":
                if not message.oneof_decl:
                    message.oneof_decl.add(name="kind")
                made.oneof_index = 0
            if kind in _FIELDS or "." in kind:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".{kind if '.' in kind else f'{PACKAGE}.{kind}'}"
            else:
                made.type = getattr(kinds, f"TYPE_{kind.upper()}")
    return file


def _create() -> dict[str, Any]:
    """The class of each message."""
    pool = DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    found = pool.AddSerializedFile(_describe().SerializeToString()) or pool.FindFileByName("ir3de/envoy.proto")
    return {name: message_factory.GetMessageClass(found.message_types_by_name[name]) for name in _FIELDS}


_CLASSES = _create()


def __getattr__(name: str) -> Any:
    try:
        return _CLASSES[name]
    except KeyError:
        raise AttributeError(name) from None
