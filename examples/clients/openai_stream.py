import os

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1"), api_key="any")
question = {"role": "user", "content": "Can my landlord evict me?"}
for chunk in client.chat.completions.create(model="auto", messages=[question], stream=True):
    if hasattr(chunk, "ir3de"):  # the first one has the provenance
        print(chunk.ir3de["expert"], end=": ")
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
