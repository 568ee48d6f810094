import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.IR3DE_URL ?? "http://127.0.0.1:8100/v1", apiKey: "any" });
const messages = [{ role: "user", content: "Can my landlord evict me?" }];

const answer = await client.chat.completions.create({ model: "auto", messages });
console.log(answer.choices[0].message.content);
console.log(answer.ir3de.expert, answer.ir3de.confidence);

for await (const chunk of await client.chat.completions.create({ model: "auto", messages, stream: true })) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}
console.log();
