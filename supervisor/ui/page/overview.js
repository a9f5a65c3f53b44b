// What the machine does now.

import { html, useEffect, useState } from "./preact.js";
import { useStore } from "./store.js";
import { watchMemory } from "./live.js";
import { DeviceBar, Legend } from "./bars.js";
import { bytes, count, duration, speed, tokens } from "./format.js";
import { Problem, State, placeOf, useClock } from "./widgets.js";
import { ModelActions } from "./actions.js";
import { Throughput, useSummary } from "./history.js";

const GONE = new Set(["unloaded"]);

export function Overview() {
  const state = useStore();
  const [error, setError] = useState(null);
  const summary = useSummary();
  useEffect(watchMemory, []);
  const models = [...state.models.values()];
  const here = models.filter((one) => !GONE.has(one.state));
  return html`
    <div class="head"><h1>Overview</h1></div>
    <${Problem} error=${error} />
    <${Tiles} state=${state} models=${models} />
    <section class="card" aria-labelledby="devices">
      <header><h2 id="devices">Devices</h2><${Legend} /></header>
      ${state.memory
        ? state.memory.devices.map((device) => html`<${DeviceBar} key=${device.name} device=${device} />`)
        : html`<p class="empty">Looking at the machine …</p>`}
    </section>
    <section class="card" aria-labelledby="loaded">
      <header><h2 id="loaded">Models</h2><a href="#/models">Load a model</a></header>
      ${here.length
        ? html`<${ModelTable} models=${here} summary=${summary} onError=${setError} />`
        : html`<p class="empty">No model is loaded. A request loads the one that it names; <a href="#/models">or load one here</a>.</p>`}
    </section>
    <${Throughput} summary=${summary} />
  `;
}

function Tiles({ state, models }) {
  const at = useClock();
  const ready = models.filter((one) => one.state === "ready").length;
  const coming = models.filter((one) => ["reserved", "loading"].includes(one.state)).length;
  const failed = models.filter((one) => ["failed", "backoff"].includes(one.state)).length;
  const requests = [...state.requests.values()];
  const waiting = requests.filter((one) => one.state === "waiting").length;
  const status = state.status;
  const also = [coming && `${coming} coming`, failed && `${failed} failed`].filter(Boolean).join(", ");
  return html`<dl class="tiles">
    <div class="tile"><dt>Models ready</dt><dd>${ready} <small>${also || `of ${models.length}`}</small></dd></div>
    <div class="tile"><dt>Requests</dt><dd>${count(requests.length - waiting)} <small>at work, ${count(waiting)} waiting</small></dd></div>
    <div class="tile"><dt>Engine</dt><dd>${status?.engine?.build ? `b${status.engine.build}` : "–"} <small>${status && !status.engine ? "none found" : "llama-server"}</small></dd></div>
    <div class="tile"><dt>Running for</dt><dd>${status ? duration(at - status.started_at) : "–"}</dd></div>
  </dl>`;
}

/** Models with what they do, and what can be done with them. `summary`: of the last hour, for their speed. */
export function ModelTable({ models, summary, onError }) {
  const at = useClock();
  return html`<table class="stack">
    <thead>
      <tr>
        <th scope="col">Model</th><th scope="col">State</th><th scope="col" class="number">Context</th>
        <th scope="col" class="number">At work</th><th scope="col" class="number">Waiting</th>
        <th scope="col" class="number">Speed</th>
        <th scope="col" class="number">Memory</th><th scope="col" class="number">Leaves in</th>
        <th scope="col"><span class="unseen">Actions</span></th>
      </tr>
    </thead>
    <tbody>
      ${models.map(
        (one) => html`<tr key=${one.id}>
          <th scope="row"><a class="break" href=${placeOf(one.id)}>${one.id}</a></th>
          <td data-name="State"><${Doing} model=${one} /></td>
          <td class="number" data-name="Context">${tokens(one.n_ctx)}</td>
          <td class="number" data-name="At work">${one.leases}${one.n_slots ? ` of ${one.n_slots}` : ""}</td>
          <td class="number" data-name="Waiting">${one.waiting}</td>
          <td class="number" data-name="Speed">${speed(summary?.models[one.id]?.tokens_per_second?.p50)}</td>
          <td class="number" data-name="Memory">${bytes(held(one))}</td>
          <td class="number" data-name="Leaves in">${one.pinned ? "pinned" : one.expires_at ? duration(one.expires_at - at) : "–"}</td>
          <td class="actions"><${ModelActions} model=${one} onError=${onError} small /></td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/** State and progress of a model. */
export function Doing({ model }) {
  return html`<span><${State} of=${model.state} stage=${model.stage} />
    ${model.progress !== null && model.state !== "ready" &&
    html`<progress aria-label=${`Progress of ${model.id}`} max="1" value=${model.progress}></progress>`}</span>`;
}

/** Bytes that a model holds on all devices: measured, else planned. */
function held(model) {
  if (model.footprint) return Object.values(model.footprint).reduce((sum, one) => sum + one, 0);
  return model.plan ? model.plan.parts.reduce((sum, one) => sum + one.total_bytes, 0) : null;
}
