"""Who provides the models of an expert: `gen_ai.provider.name`, in the words of OpenTelemetry where it has one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

UNKNOWN_PROVIDER = "openai_compatible"  # nothing tells more than that it speaks this API

_HOSTS = {  # a host, or what it ends with
    "api.openai.com": "openai",
    ".api.openai.com": "openai",
    ".openai.azure.com": "azure.ai.openai",
    ".cognitiveservices.azure.com": "azure.ai.openai",
    ".services.ai.azure.com": "azure.ai.inference",
    ".inference.ai.azure.com": "azure.ai.inference",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "-aiplatform.googleapis.com": "gcp.vertex_ai",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    ".ml.cloud.ibm.com": "ibm.watsonx.ai",
    "api.mistral.ai": "mistral_ai",
    "api.moonshot.ai": "moonshot_ai",
    "api.moonshot.cn": "moonshot_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "openrouter.ai": "openrouter",
    "api.together.xyz": "together_ai",
    "api.fireworks.ai": "fireworks_ai",
    "router.huggingface.co": "hugging_face",
}
_SERVERS = ("llama.cpp", "ollama", "vllm", "sglang", "litellm", "lm studio", "text-generation-inference", "triton")


@lru_cache(maxsize=4096)
def find_provider_of_host(host: str) -> str | None:
    """The provider that a well-known host belongs to.

    >>> find_provider_of_host("api.openai.com"), find_provider_of_host("team.openai.azure.com")
    ('openai', 'azure.ai.openai')
    >>> find_provider_of_host("api.openai.com.example.org") is None
    True
    """
    host = host.lower().rstrip(".")
    if host.startswith("bedrock") and host.endswith((".amazonaws.com", ".api.aws")):
        return "aws.bedrock"
    for known, provider in _HOSTS.items():
        if host == known or (known[0] in ".-" and host.endswith(known)):
            return provider
    return None


def find_provider_of_headers(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The kind of server that the headers of an answer name.

    >>> find_provider_of_headers([(b"server", b"llama.cpp")])
    'llama.cpp'
    """
    told = " ".join(value[:100].decode("latin-1").lower() for name, value in headers if name == b"server")
    return next((server for server in _SERVERS if server in told), None)
