// Anthropic's own client for JavaScript, through the gateway at IR3DE_URL, which has an expert with OpenAI's API only.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.IR3DE_URL.replace(/\/v1$/, ""), apiKey: "any", maxRetries: 0 });
const asked = { model: "law", max_tokens: 9, messages: [{ role: "user", content: "Is my contract void?" }] };
const tools = [{ name: "weather", input_schema: { type: "object", properties: {} } }];
const found = {};

const answer = await client.messages.create(asked);
found.whole = [answer.content[0].text, answer.stop_reason, answer.usage.input_tokens, answer.usage.output_tokens];

const streamed = await client.messages.stream(asked).finalMessage();
found.streamed = [streamed.content[0].text, streamed.stop_reason, streamed.usage.input_tokens,
  streamed.usage.output_tokens];

const called = await client.messages.stream({ ...asked, tools }).finalMessage();
found.tools = [called.stop_reason, called.content[0].name, called.content[0].input];

try {
  await client.messages.create({ ...asked, container: "c" });
} catch (error) {
  found.refused = [error.constructor.name, error.status, error.error.error.param];
}
console.log(JSON.stringify(found));
