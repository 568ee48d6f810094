import json
import os

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1"), api_key="any")
city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"type": "function", "function": {"name": "weather", "parameters": city}}]
messages = [{"role": "user", "content": "What is the weather in Zürich?"}]
session = {"x-session-id": "tools-1"}  # the conversation stays with its expert

first = client.chat.completions.create(model="auto", messages=messages, tools=tools, extra_headers=session)
messages.append(first.choices[0].message)
for call in first.choices[0].message.tool_calls or ():
    result = f"It rains in {json.loads(call.function.arguments)['city']}."
    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
second = client.chat.completions.create(model="auto", messages=messages, tools=tools, extra_headers=session)
print(second.choices[0].message.content)
