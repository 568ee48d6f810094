import asyncio
import os

from openai import AsyncOpenAI

QUESTIONS = ("Can my landlord evict me?", "Solve 3x = 12.", "How do I boil an egg?")


async def main() -> None:
    url = os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1")
    async with AsyncOpenAI(base_url=url, api_key="any") as client:
        asked = (
            client.chat.completions.create(model="auto", messages=[{"role": "user", "content": question}])
            for question in QUESTIONS
        )
        for question, answer in zip(QUESTIONS, await asyncio.gather(*asked), strict=True):
            print(f"{question} {answer.ir3de['expert']}: {answer.choices[0].message.content}")


asyncio.run(main())
