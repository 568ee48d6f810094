"""A LangChain chain that asks, for each chat, the model of the expert that the router names."""

import os

from langchain_core.messages import convert_to_openai_messages
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_openai import ChatOpenAI

from ir3de import Conversation, Router

url = os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1")  # or one address per model
router = Router.load(os.environ.get("IR3DE_ROUTER", "router"))
models = {expert: ChatOpenAI(model=expert, base_url=url, api_key="any") for expert in router.experts}


def pick_model(prompt: PromptValue) -> Runnable:
    """The chat model for these messages; LangChain then gives them to it."""
    messages = convert_to_openai_messages(prompt.to_messages())
    decision = Conversation.from_messages(router, messages).decision
    return models[decision.expert or decision.best]  # where none fits, the nearest one


template = ChatPromptTemplate.from_messages([("system", "Answer in one sentence."), ("user", "{question}")])
chain = template | RunnableLambda(pick_model) | StrOutputParser()

print(chain.invoke({"question": "Can my landlord evict me?"}))
for piece in chain.stream({"question": "Solve 3x = 12."}):
    print(piece, end="", flush=True)
print()
