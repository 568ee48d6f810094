"""LiteLLM's auto-router: semantic-router inside LiteLLM. The encoder is a local folder, in the same process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import measuring

NOBODY = "nobody"  # the model for prompts without a route


class AutoRouter(measuring.Refitted):
    vectors = "sentence-transformers"

    def load(self, model: str) -> None:
        import litellm
        from litellm import CustomLLM
        from litellm.types.utils import Embedding, EmbeddingResponse
        from sentence_transformers import SentenceTransformer

        self._encoder = SentenceTransformer(model, device=measuring.find_device())
        self._at_hand: dict[str, Any] = {}

        def embed(texts: list[str]) -> Any:
            here = self._at_hand
            vectors = [here[text] for text in texts] if all(text in here for text in texts) else self.encode(texts)
            data = [Embedding(embedding=row.tolist(), index=i, object="embedding") for i, row in enumerate(vectors)]
            return EmbeddingResponse(model=model, data=data)

        class Local(CustomLLM):
            def embedding(self, model: str, input: list[str], *others: Any, **more: Any) -> Any:  # noqa: A002 - LiteLLM's name
                return embed(input)

            async def aembedding(self, model: str, input: list[str], *others: Any, **more: Any) -> Any:  # noqa: A002 - LiteLLM's name
                return embed(input)

        litellm.custom_provider_map = [{"provider": "local", "custom_handler": Local()}]
        litellm.utils.custom_llm_setup()
        litellm.suppress_debug_info = True
        self._module: Any = litellm
        self._loop = asyncio.new_event_loop()

    def encode(self, texts: list[str]) -> Any:
        return self._encoder.encode(texts, normalize_embeddings=True, batch_size=64, show_progress_bar=False)

    def fit(self, texts: list[str], labels: list[str]) -> None:
        self.keep(texts, labels)
        examples: dict[str, list[str]] = {}
        for text, label in zip(texts, labels, strict=True):
            examples.setdefault(label, []).append(text)
        routes = [{"name": name, "utterances": some, "score_threshold": 0.01} for name, some in examples.items()]
        models = [
            {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_key": "none"}}
            for name in [*examples, NOBODY]
        ]
        embedding = {"model_name": "minilm", "litellm_params": {"model": "local/minilm"}}
        auto = {
            "model_name": "auto",
            "litellm_params": {
                "model": "auto_router/auto",
                "auto_router_config": json.dumps({"routes": routes}),
                "auto_router_default_model": NOBODY,
                "auto_router_embedding_model": "minilm",
            },
        }
        self._router = self._module.Router(model_list=[*models, embedding, auto])
        self.route("the routes are embedded by the first prompt")

    def route_many(self, texts: list[str]) -> list[tuple[str | None, float]]:
        """Encode all prompts at once, and then route one after the other."""
        self._at_hand = dict(zip(texts, self.encode(texts), strict=True))
        routed = [self.route(text) for text in texts]
        self._at_hand = {}
        return routed

    def route(self, text: str) -> tuple[str | None, float]:
        messages = [{"role": "user", "content": text}]
        hook = self._router.async_pre_routing_hook(model="auto", request_kwargs={}, messages=messages)
        found = self._loop.run_until_complete(hook)
        named = None if found is None or found.model == NOBODY else found.model
        return named, 0.0 if named is None else 1.0  # it does not say how sure it is


if __name__ == "__main__":
    measuring.main(AutoRouter())
