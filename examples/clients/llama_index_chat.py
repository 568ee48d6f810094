import os

from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

url = os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1")
model = OpenAILike(model="auto", api_base=url, api_key="any", is_chat_model=True, context_window=8192)
answer = model.chat([ChatMessage(role="user", content="Can my landlord evict me?")])
print(answer.message.content)
print(answer.raw.ir3de["expert"])
