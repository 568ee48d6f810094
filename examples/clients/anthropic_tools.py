import os

from anthropic import Anthropic

url = os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1").removesuffix("/v1")
client = Anthropic(base_url=url, api_key="any", default_headers={"x-session-id": "tools-2"})  # one conversation
city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"name": "weather", "description": "The weather of a city.", "input_schema": city}]
messages = [{"role": "user", "content": "Can my landlord evict me while it rains in Zürich?"}]

answer = client.messages.create(model="auto", max_tokens=500, tools=tools, messages=messages)
while answer.stop_reason == "tool_use":
    calls = [block for block in answer.content if block.type == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": f"It rains in {call.input['city']}."}
        for call in calls
    ]
    messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    answer = client.messages.create(model="auto", max_tokens=500, tools=tools, messages=messages)
print(answer.content[0].text)
print(answer.ir3de["expert"], answer.usage.output_tokens)
