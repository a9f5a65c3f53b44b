// Calls of the daemon. A key is kept for this tab alone, and sent as `Authorization: Bearer`.

import { put } from "./store.js";

const KEPT = "supervisor-key";
let key = sessionStorage.getItem(KEPT) ?? "";

export function hasKey() {
  return key !== "";
}

export function useKey(text) {
  key = text.trim();
  if (key) sessionStorage.setItem(KEPT, key);
  else sessionStorage.removeItem(KEPT);
}

/** Take over a key that was just made, where the one in use, or none, opens nothing any more; true: it was taken over. */
export async function adopt(fresh) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const { status } = await fetch("/api/v1/status", { headers, credentials: "omit", cache: "no-store" });
  if (status !== 401) return false;
  useKey(fresh);
  return true;
}

/** An answer that says what is wrong. */
export class Refused extends Error {
  constructor(status, told) {
    super(told.message ?? `The daemon answered with status ${status}.`);
    this.status = status;
    this.code = told.code ?? String(status);
    this.logLines = told.log_lines ?? [];
  }
}

/** Ask the daemon; the response. Raises Refused, and TypeError where nobody answers. */
export async function call(method, path, body, { signal, accept } = {}) {
  const headers = {};
  if (key) headers.authorization = `Bearer ${key}`;
  if (accept) headers.accept = accept;
  if (body !== undefined) headers["content-type"] = "application/json";
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(path, { method, headers, body: sent, signal, credentials: "omit", cache: "no-store" });
  if (response.status === 401) put({ locked: true, connected: false });
  if (response.ok) return response;
  const text = await response.text();
  throw new Refused(response.status, errorIn(text));
}

function errorIn(text) {
  try {
    return JSON.parse(text).error ?? {};
  } catch {
    return { message: text.slice(0, 500) || undefined };
  }
}

export async function get(path, options) {
  return (await call("GET", path, undefined, options)).json();
}

export async function post(path, body, options) {
  return (await call("POST", path, body ?? {}, options)).json();
}

export async function remove(path) {
  return (await call("DELETE", path)).json();
}

/** The lines of an answer as they come. */
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts;
    }
    if (rest) yield rest;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The events of an answer: {event, data}, `data` as JSON. `[DONE]` ends them. */
export async function* events(response) {
  let event = "message";
  let data = [];
  for await (const line of lines(response)) {
    const text = line.replace(/\r$/, "");
    if (text.startsWith("event:")) event = text.slice(6).trim();
    else if (text.startsWith("data:")) data.push(text.slice(5).replace(/^ /, ""));
    else if (text === "" && data.length) {
      if (data[0] === "[DONE]") return;
      yield { event, data: JSON.parse(data.join("\n")) };
      event = "message";
      data = [];
    }
  }
}

/** What to tell of anything that was thrown. */
export function told(error) {
  if (error instanceof Refused) return error.message;
  return error instanceof TypeError ? "The daemon does not answer; `supervisor start` starts it." : String(error.message ?? error);
}
