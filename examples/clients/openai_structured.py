import os

from openai import OpenAI
from pydantic import BaseModel


class Result(BaseModel):
    value: int


client = OpenAI(base_url=os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1"), api_key="any")
answer = client.chat.completions.parse(
    model="auto",
    messages=[{"role": "user", "content": "Solve 3x = 12."}],
    response_format=Result,
)
print(answer.choices[0].message.parsed)
