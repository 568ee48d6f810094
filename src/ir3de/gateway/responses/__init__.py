"""Relaying an expert's answer to the client, whole or streamed, with its provenance."""
