import os

from anthropic import Anthropic

url = os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1").removesuffix("/v1")  # this client adds it
client = Anthropic(base_url=url, api_key="any")
question = {"role": "user", "content": "Can my landlord evict me?"}
answer = client.messages.create(model="auto", max_tokens=200, messages=[question])
print(answer.content[0].text)
print(answer.ir3de["expert"])
with client.messages.stream(model="auto", max_tokens=200, messages=[question]) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
print()
