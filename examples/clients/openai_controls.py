import os

from openai import NotFoundError, OpenAI

client = OpenAI(base_url=os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1"), api_key="any")
names = [model.id for model in client.models.list()]
print("auto routes; by name:", ", ".join(names[2:]))

question = {"role": "user", "content": "Can my landlord evict me?"}
raw = client.chat.completions.with_raw_response.create(
    model="auto",
    messages=[question],
    extra_body={"ir3de": {"allow": names[2:4], "session": "monday"}},  # never reaches the expert
)
print(raw.headers["x-ir3de-expert"], raw.headers["x-ir3de-confidence"], raw.request_id)

try:
    client.chat.completions.create(model="nobody", messages=[question])
except NotFoundError as error:
    print(error.code)
