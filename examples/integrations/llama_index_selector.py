"""A selector for LlamaIndex's RouterQueryEngine: the router names the query engine, and no language model is asked."""

import os
from collections.abc import Sequence

from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import CustomQueryEngine, RouterQueryEngine
from llama_index.core.schema import QueryBundle
from llama_index.core.tools import QueryEngineTool, ToolMetadata

from ir3de import Router


class RouterSelector(BaseSelector):
    """Selects the tool that has the name of the likeliest expert."""

    def __init__(self, router: Router) -> None:
        self.router = router

    def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        places = {choice.name: place for place, choice in enumerate(choices)}
        ranking = self.router.route(query.query_str).ranking
        found = [(expert, probability) for expert, probability in ranking if expert in places]
        if not found:
            raise ValueError(f"no tool is named after an expert: {list(places)} and {list(self.router.experts)}")
        expert, probability = found[0]
        return SelectorResult(selections=[SingleSelection(index=places[expert], reason=f"{expert}: {probability:.2f}")])

    async def _aselect(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        return self._select(choices, query)  # it takes microseconds

    def _get_prompts(self) -> dict[str, object]:
        return {}

    def _update_prompts(self, prompts: dict[str, object]) -> None:
        pass


class Echo(CustomQueryEngine):
    """Stands for the query engine of an index of yours: `index.as_query_engine()`."""

    name: str

    def custom_query(self, query_str: str) -> str:
        return f"{self.name} answers: {query_str}"


router = Router.load(os.environ.get("IR3DE_ROUTER", "router"))
tools = [QueryEngineTool.from_defaults(Echo(name=name), name=name, description=name) for name in router.experts]
engine = RouterQueryEngine(RouterSelector(router), tools, llm=MockLLM())  # the model that would join several answers
for question in ("Can my landlord evict me?", "Solve 3x = 12."):
    answer = engine.query(question)
    print(answer, answer.metadata["selector_result"].reason)
