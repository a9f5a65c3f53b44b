// What the official SDKs for Node get from a server: the same calls as those of `battery.py`, by the same names.
//
//     node battery.mjs URL        prints one JSON object

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const url = process.argv[2];
const model = "talker";
const said = (content) => [{ role: "user", content }];
const schema = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "get_weather", parameters: schema } }];
const responseTools = [{ type: "function", name: "get_weather", parameters: schema, strict: false }];
const structured = { type: "json_schema", json_schema: { name: "place", schema, strict: true } };

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "unused", maxRetries: 0 });

async function whole(made) {
  if (made[Symbol.asyncIterator] === undefined) return made;
  const events = [];
  for await (const event of made) events.push(event);
  return events;
}

async function first(stream) {
  const events = [];
  for await (const event of stream) if (events.push(event) === 3) break; // which aborts it
  return events;
}

async function status(call) {
  try {
    await call();
  } catch (error) {
    return { error: error.constructor.name, status: error.status ?? null };
  }
  return "no error";
}

const chat = async (text = "Hi", more = {}, options = {}) =>
  whole(await openai.chat.completions.create({ model, messages: said(text), temperature: 0, ...more }, options));
const completion = async (more = {}) =>
  whole(await openai.completions.create({ model, prompt: "Hi", max_tokens: 50, ...more }));
const response = async (input = "Hi", more = {}) => whole(await openai.responses.create({ model, input, ...more }));
const message = async (text = "Hi", more = {}) =>
  whole(await anthropic.messages.create({ model, messages: said(text), max_tokens: 100, ...more }));
const vectors = async (encoding_format) => {
  const found = await openai.embeddings.create({ model, input: ["one", "two"], encoding_format });
  return found.data.map(({ index, embedding }) => ({ index, embedding }));
};
const stream = true;

const calls = {
  chat,
  chat_stream: () => chat("Hi", { stream, stream_options: { include_usage: true } }),
  tools: () => chat("call", { tools }),
  tools_stream: () => chat("call", { tools, stream }),
  structured: () => chat("Hi", { response_format: structured, max_tokens: 40 }),
  choices: () => chat("Hi", { n: 2 }),
  completion,
  completion_stream: () => completion({ stream }),
  embeddings: () => vectors("float"),
  embeddings_base64: () => vectors("base64"),
  response,
  response_stream: () => response("Hi", { stream }),
  response_tools: () => response("call", { tools: responseTools }),
  models: async () => (await whole(await openai.models.list())).map((one) => one.id).filter((id) => id === model),
  wrong_parameter: () => status(() => chat("Hi", { top_p: "much" })),
  wrong_messages: () => status(() => chat("Hi", { messages: "none" })),
  abort: async () =>
    first(await openai.chat.completions.create({ model, messages: said("endless"), stream })),
  timeout: () => status(() => chat("endless", {}, { timeout: 200 })),
  message,
  message_stream: () => message("Hi", { stream }),
  message_tools: () => message("call", { tools: [{ name: "get_weather", input_schema: schema }] }),
  message_count: () => anthropic.messages.countTokens({ model, messages: said("Hi") }),
  message_wrong: () => status(() => message("Hi", { messages: [{ role: 5 }] })),
  message_abort: async () =>
    first(await anthropic.messages.create({ model, messages: said("endless"), max_tokens: 100000, stream })),
};

const results = {};
for (const [name, call] of Object.entries(calls)) results[name] = await call();
process.stdout.write(JSON.stringify(results));
