// The requests in flight, and those that have ended.

import { html, useEffect, useState } from "./preact.js";
import { remove } from "./api.js";
import { useStore } from "./store.js";
import { watch } from "./live.js";
import { count, duration, speed } from "./format.js";
import { Act, Problem, placeOf, useClock } from "./widgets.js";
import { Captured } from "./captured.js";
import { History } from "./history.js";

export function Requests() {
  const { models, requests } = useStore();
  const [error, setError] = useState(null);
  useEffect(() => watch("speeds"), []);
  const all = [...requests.values()].sort((one, other) => one.since - other.since);
  return html`
    <div class="head"><h1>Requests</h1></div>
    <${Problem} error=${error} />
    <section class="card" aria-labelledby="in-flight">
      <header><h2 id="in-flight">In flight</h2><span class="muted small">the oldest first</span></header>
      ${all.length ? html`<${InFlight} requests=${all} onError=${setError} />` : html`<p class="empty">No request is running or waiting.</p>`}
    </section>
    <${History} models=${[...models.keys()]} />
    <${Captured} models=${[...models.keys()]} />
  `;
}

function InFlight({ requests, onError }) {
  const at = useClock();
  return html`<table class="stack">
    <thead>
      <tr>
        <th scope="col">Request</th><th scope="col">Model</th><th scope="col">Path</th><th scope="col">State</th>
        <th scope="col" class="number">For</th><th scope="col" class="number">Prompt + answer</th><th scope="col" class="number">Speed</th><th scope="col"><span class="unseen">Actions</span></th>
      </tr>
    </thead>
    <tbody>
      ${requests.map(
        (one) => html`<tr key=${one.id}>
          <th scope="row" class="break"><code title=${one.request_id}>${one.request_id}</code></th>
          <td data-name="Model"><a class="break" href=${placeOf(one.model)}>${one.model}</a></td>
          <td data-name="Path"><code>${one.path}</code>${one.stream ? html` <span class="pill">stream</span>` : ""}</td>
          <td data-name="State"><span class=${`state ${one.state === "running" ? "ready" : "busy"}`}>${one.state}</span></td>
          <td class="number" data-name="For">${duration(at - one.since)}</td>
          <td class=${one.prompt_tokens || one.completion_tokens ? "number" : "number nothing"} data-name="Prompt + answer" title="tokens read and written up to now">${one.prompt_tokens || one.completion_tokens ? `${count(one.prompt_tokens)} + ${count(one.completion_tokens)}` : "–"}</td>
          <td class=${one.tokens_per_second ? "number" : "number nothing"} data-name="Speed">${speed(one.tokens_per_second || null)}</td>
          <td class="actions">
            <${Act} class="quiet danger" aria-label=${`Cancel request ${one.id}`} onError=${onError} run=${() => remove(`/api/v1/requests/${one.id}`)}>Cancel</${Act}>
          </td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}
