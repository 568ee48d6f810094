"""A component for haystack: a question leaves through the output that is named after its expert."""

import os

from haystack import Pipeline, component
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret

from ir3de import Conversation, Router


@component
class ExpertRouter:
    """Has one output per expert, and sends messages out through one of them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.router = Router.load(path)
        component.set_output_types(self, **dict.fromkeys(self.router.experts, list[ChatMessage]))

    def run(self, messages: list[ChatMessage]) -> dict[str, list[ChatMessage]]:
        chat = [{"role": message.role.value, "content": message.text or ""} for message in messages]
        decision = Conversation.from_messages(self.router, chat).decision
        return {decision.expert or decision.best: messages}  # where none fits, the nearest one


url = os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1")  # or one address per model
pipeline = Pipeline()
pipeline.add_component("router", ExpertRouter(os.environ.get("IR3DE_ROUTER", "router")))
for expert in pipeline.get_component("router").router.experts:
    generator = OpenAIChatGenerator(Secret.from_token("any"), model=expert, api_base_url=url)
    pipeline.add_component(expert, generator)
    pipeline.connect(f"router.{expert}", f"{expert}.messages")

for question in ("Can my landlord evict me?", "Solve 3x = 12."):
    for expert, found in pipeline.run({"router": {"messages": [ChatMessage.from_user(question)]}}).items():
        print(expert, found["replies"][0].text)
