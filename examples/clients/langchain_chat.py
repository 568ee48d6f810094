import os

from langchain_openai import ChatOpenAI

url = os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1")
model = ChatOpenAI(model="auto", base_url=url, api_key="any", include_response_headers=True)
answer = model.invoke("Can my landlord evict me?")
print(answer.content)
print(answer.response_metadata["headers"]["x-ir3de-expert"])
for chunk in model.stream("Can my landlord evict me?"):
    print(chunk.content, end="", flush=True)
print()
