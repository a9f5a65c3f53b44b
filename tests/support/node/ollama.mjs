// What Ollama's own client for Node gets from a server.
//
//     node ollama.mjs URL        prints one JSON object

import { Ollama } from "ollama";

const client = new Ollama({ host: process.argv[2] });
const model = "talker";
const said = (content) => [{ role: "user", content }];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", description: "Weather", parameters } }];

async function all(stream) {
  const lines = [];
  for await (const line of await stream) lines.push(line);
  return lines;
}

async function failure(call) {
  try {
    await call();
  } catch (error) {
    return { name: error.name, message: error.message, status: error.status_code };
  }
  return null;
}

async function aborted() {
  const stream = await client.chat({ model, messages: said("endless"), stream: true });
  let lines = 0;
  try {
    for await (const _ of stream) if (++lines === 3) stream.abort();
  } catch (error) {
    return { lines, name: error.name };
  }
  return { lines, name: null };
}

const told = {
  chat: await client.chat({ model, messages: said("hi") }),
  streamed: await all(client.chat({ model, messages: said("hi"), stream: true })),
  thought: await client.chat({ model, messages: said("think"), think: true }),
  call: await client.chat({ model, messages: said("call"), tools }),
  called: await all(client.chat({ model, messages: said("call"), tools, stream: true })),
  generated: await client.generate({ model, prompt: "hi", options: { num_predict: 3 } }),
  raw: await all(client.generate({ model, prompt: "hi", raw: true, stream: true, options: { num_predict: 3 } })),
  embedded: await client.embed({ model, input: ["one", "two"] }),
  embedding: await client.embeddings({ model, prompt: "one" }),
  list: await client.list(),
  ps: await client.ps(),
  show: await client.show({ model }),
  version: await client.version(),
  pulled: await client.pull({ model }),
  pulling: await all(client.pull({ model, stream: true })),
  copied: await client.copy({ source: model, destination: "bird" }),
  unknown: await failure(() => client.chat({ model: "nobody", messages: said("hi") })),
  pushed: await failure(() => client.push({ model })),
  deleted: await failure(() => client.delete({ model })),
  aborted: await aborted(),
};
console.log(JSON.stringify(told));
