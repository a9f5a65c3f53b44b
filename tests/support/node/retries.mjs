// What OpenAI's SDK for Node does about a refusal.
//
//     node retries.mjs URL MODEL PADDING      asks MODEL, with a field of PADDING characters; after the first refusal
//                                             it ends all requests that the daemon has; prints one JSON object

import OpenAI from "openai";

const [url, model, padding] = process.argv.slice(2);
const seen = [];

async function watched(...asked) {
  const answer = await fetch(...asked);
  seen.push({ status: answer.status, at: performance.now() / 1000, after: answer.headers.get("retry-after") });
  if (seen.length === 1 && answer.status !== 200) {
    const { requests } = await (await fetch(`${url}/api/v1/requests`)).json();
    for (const { id } of requests) await fetch(`${url}/api/v1/requests/${id}`, { method: "DELETE" });
  }
  return answer;
}

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 3, fetch: watched });
const asked = { model, messages: [{ role: "user", content: "Hi" }], padding: "x".repeat(Number(padding)) };
const said = await client.chat.completions.create(asked).then(
  (answer) => answer.choices[0].message.content,
  (error) => error.code,
);
console.log(JSON.stringify({ seen, said }));
