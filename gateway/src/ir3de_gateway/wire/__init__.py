"""The formats of the APIs, and the streams of server-sent events that they share."""

from ir3de_gateway.wire.formats import FORMATS as FORMATS
