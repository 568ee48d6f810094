// OpenAI's own client for JavaScript, through the gateway at IR3DE_URL: what it finds, as one line of JSON.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.IR3DE_URL, apiKey: "any", maxRetries: 0 });
const question = (content) => [{ role: "user", content }];
const LAW = question("Is my contract void?");
const found = {};

async function refusal(asking) {
  try {
    const answer = await asking();
    for await (const _ of answer) { /* to the end */ }
    return "answered";
  } catch (error) {
    return [error.constructor.name, error.status ?? null, error.code ?? null];
  }
}

const answer = await client.chat.completions.create({
  model: "auto", messages: LAW, ir3de: { deny: ["cooking"] }, unknown: 1,
});
found.chat = [answer.choices[0].message.content, answer.ir3de.expert, answer.usage.total_tokens];

const { data, response, request_id } = await client.chat.completions
  .create({ model: "auto", messages: LAW }, { headers: { "x-request-id": "mine-2" } }).withResponse();
found.headers = [response.headers.get("x-ir3de-expert"), response.headers.get("openai-processing-ms"), request_id,
  data._request_id];

found.stream = [];
for await (const chunk of await client.chat.completions.create({ model: "auto", messages: LAW, stream: true })) {
  if (chunk.ir3de) found.stream.push(chunk.ir3de.expert);
  if (chunk.choices[0]?.delta?.content) found.stream.push(chunk.choices[0].delta.content);
}

const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
const first = await client.chat.completions.create({ model: "law", messages: LAW, tools });
const call = first.choices[0].message.tool_calls[0];
const turns = [...LAW, first.choices[0].message, { role: "tool", tool_call_id: call.id, content: "rain" }];
const second = await client.chat.completions.create({ model: "law", messages: turns, tools });
const streamed = await client.chat.completions.stream({ model: "law", messages: LAW, tools }).finalChatCompletion();
found.tools = [JSON.parse(call.function.arguments), second.choices[0].message.content,
  JSON.parse(streamed.choices[0].message.tool_calls[0].function.arguments)];

found.responses = (await client.responses.create({ model: "auto", input: "Is my contract void?" })).output_text;
found.embeddings = (await client.embeddings.create({ model: "law", input: "x", encoding_format: "float" })).data[0].embedding;
found.models = [];
for await (const model of client.models.list()) found.models.push(model.id);

found.unknown = await refusal(() => client.chat.completions.create({ model: "nobody", messages: LAW }));
found.empty = await refusal(() => client.chat.completions.create({ model: "auto", messages: [] }));
found.broken = await refusal(() => client.chat.completions.create({ model: "maths", messages: LAW, stream: true }));
found.limited = await refusal(() => client.chat.completions.create({ model: "cooking", messages: LAW }));
found.retried = (await client.chat.completions.create({ model: "cooking", messages: LAW }, { maxRetries: 2 }))
  .choices[0].message.content;

console.log(JSON.stringify(found));
