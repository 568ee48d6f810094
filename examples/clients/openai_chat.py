import os

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1"), api_key="any")
answer = client.chat.completions.create(
    model="auto",
    messages=[{"role": "user", "content": "Can my landlord evict me?"}],
)
print(answer.choices[0].message.content)
print(answer.ir3de["expert"], answer.ir3de["confidence"])
