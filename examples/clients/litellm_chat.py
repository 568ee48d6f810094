import os

import litellm

url = os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1")
question = {"role": "user", "content": "Can my landlord evict me?"}
answer = litellm.completion(model="openai/auto", api_base=url, api_key="any", messages=[question])
print(answer.choices[0].message.content)
print(answer._hidden_params["additional_headers"]["llm_provider-x-ir3de-expert"])
for chunk in litellm.completion(model="openai/auto", api_base=url, api_key="any", messages=[question], stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
