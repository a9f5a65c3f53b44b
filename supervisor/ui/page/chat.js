// A conversation with one model: the request, the stream of its answer, and the same as a command. No drawing here.

import { call, events } from "./api.js";

/** The body of a request. `settings`: system, temperature, max_tokens, tools (JSON text, or ""). */
export function requestOf(model, messages, settings) {
  const body = { model, messages: [...(settings.system ? [{ role: "system", content: settings.system }] : []), ...messages.map(plain)] };
  if (settings.temperature !== "") body.temperature = Number(settings.temperature);
  if (settings.max_tokens !== "") body.max_tokens = Number(settings.max_tokens);
  if (settings.tools.trim()) body.tools = JSON.parse(settings.tools);
  return { ...body, stream: true };
}

/** A message as the interface wants it: without what only this page knows of it. */
function plain({ role, content, tool_calls, tool_call_id }) {
  if (role === "tool") return { role, tool_call_id, content };
  return tool_calls?.length ? { role, content: content || null, tool_calls } : { role, content };
}

/** Ask, and yield the answer as it grows: {role, content, reasoning, tool_calls, stats}. */
export async function* answers(body, signal) {
  const begun = performance.now();
  const answer = { role: "assistant", content: "", reasoning: "", tool_calls: [], stats: {} };
  const response = await call("POST", "/v1/chat/completions", body, { signal });
  for await (const { data } of events(response)) {
    if (data.error) throw Object.assign(new Error(data.error.message), { code: data.error.code, logLines: data.error.log_lines });
    const choice = data.choices?.[0];
    if (choice) take(answer, choice.delta ?? {});
    if (choice?.finish_reason) answer.stats.finish = choice.finish_reason;
    if (choice && answer.stats.first === undefined && (answer.content || answer.reasoning || answer.tool_calls.length)) {
      answer.stats.first = (performance.now() - begun) / 1000;
    }
    if (data.timings) Object.assign(answer.stats, { speed: data.timings.predicted_per_second, tokens: data.timings.predicted_n });
    yield { ...answer, stats: { ...answer.stats }, tool_calls: answer.tool_calls.map((one) => ({ ...one })) };
  }
}

function take(answer, delta) {
  answer.content += delta.content ?? "";
  answer.reasoning += delta.reasoning_content ?? "";
  for (const piece of delta.tool_calls ?? []) {
    const one = (answer.tool_calls[piece.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    one.id = piece.id ?? one.id;
    one.function = {
      name: one.function.name + (piece.function?.name ?? ""),
      arguments: one.function.arguments + (piece.function?.arguments ?? ""),
    };
  }
}

/** The request as a command of the shell. */
export function asCurl(body, url, key) {
  const quoted = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  const secret = key ? ` \\\n  -H 'Authorization: Bearer '"$SUPERVISOR_API_KEY"` : "";
  return `curl -N ${url}/v1/chat/completions \\\n  -H 'Content-Type: application/json'${secret} \\\n  -d '${quoted}'`;
}

/** The request as a program. */
export function asPython(body, url, key) {
  const secret = key ? 'os.environ["SUPERVISOR_API_KEY"]' : '"none"';
  const given = Object.entries(body)
    .filter(([name]) => name !== "stream")
    .map(([name, value]) => `    ${name}=${literal(value)},`);
  return [
    ...(key ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url="${url}/v1", api_key=${secret})`,
    "stream = client.chat.completions.create(",
    ...given,
    "    stream=True,",
    ")",
    "for chunk in stream:",
    "    if chunk.choices:",
    '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
  ].join("\n");
}

/** A value as Python writes it. */
function literal(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, inner]) => `${JSON.stringify(name)}: ${literal(inner)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}
