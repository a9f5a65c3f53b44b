// What can be done with a model: begun here, told by the store.

import { html } from "./preact.js";
import { Refused, call, events, post } from "./api.js";
import { putIn } from "./store.js";
import { Act, placeOf } from "./widgets.js";

const COMING = new Set(["reserved", "loading"]);
const SETTLED = new Set(["failed", "backoff", "unloaded"]);

/** Load a target, and note how it goes: a first load that fails is forgotten by the daemon, and told here alone. */
export async function load(target, options) {
  const note = (changes) => putIn("loads", target, { status: null, error: null, done: false, ...changes });
  note({});
  let last = null;
  try {
    const asked = { target, ...(Object.keys(options).length ? { options } : {}) };
    const response = await call("POST", "/api/v1/models/load", asked, { accept: "text/event-stream" });
    for await (const { data } of events(response)) {
      last = data;
      note({ status: data });
    }
    const failed = last?.error && SETTLED.has(last.state) ? last.error : null;
    note({ status: last, error: failed, done: true });
  } catch (error) {
    const told = error instanceof Refused ? error : { message: "The daemon does not answer.", code: null };
    note({ status: last, error: { message: told.message, code: told.code, log_lines: told.logLines ?? [] }, done: true });
  }
}

export function unload(model, now = false) {
  return post("/api/v1/models/unload", { model, now });
}

/** Buttons for one model. `small`: those for a table. */
export function ModelActions({ model, onError, small, cancels = true }) {
  const kind = small ? "quiet" : "";
  const idle = SETTLED.has(model.state);
  const verb = model.pinned ? "unpin" : "pin";
  return html`
    ${idle && small && html`<a class="button" href=${placeOf(model.id)}>${model.error ? "Why" : "Plan"}<span class="unseen"> ${model.id}</span></a>`}
    ${small && model.state === "ready" && html`<a class="button quiet" href=${`#/playground/${encodeURIComponent(model.id)}`}>Chat<span class="unseen"> with ${model.id}</span></a>`}
    ${!idle &&
    html`<${Act} class=${kind} aria-label=${`${verb === "pin" ? "Pin" : "Unpin"} ${model.id}`} onError=${onError} run=${() => post(`/api/v1/models/${verb}`, { model: model.id })}>${verb === "pin" ? "Pin" : "Unpin"}</${Act}>`}
    ${!idle && (cancels || !COMING.has(model.state)) &&
    html`<${Act} class=${`${kind} danger`} onError=${onError} aria-label=${`${COMING.has(model.state) ? "Cancel loading" : "Unload"} ${model.id}`} run=${() => unload(model.id)}>
      ${COMING.has(model.state) ? "Cancel" : "Unload"}
    </${Act}>`}
  `;
}
