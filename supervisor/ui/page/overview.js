// What the machine does now.

import { html, useEffect, useState } from "./preact.js";
import { useStore } from "./store.js";
import { watch } from "./live.js";
import { DeviceBar, Legend } from "./bars.js";
import { bytes, count, duration, speed, tokens } from "./format.js";
import { Problem, State, placeOf, useClock } from "./widgets.js";
import { ModelActions } from "./actions.js";
import { Throughput, useSummary } from "./history.js";
import { Nodes, Others } from "./nodes.js";

const GONE = new Set(["unloaded"]);

export function Overview() {
  const state = useStore();
  const [error, setError] = useState(null);
  const summary = useSummary();
  useEffect(() => watch("memory"), []);
  useEffect(() => watch("nodes"), []);
  const models = [...state.models.values()];
  const here = models.filter((one) => !GONE.has(one.state));
  return html`
    <div class="head"><h1>Overview</h1></div>
    <${Problem} error=${error} />
    <${Tiles} state=${state} models=${models} />
    <${Nodes} cluster=${state.cluster} />
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
        : html`<${Nothing} known=${state.known} />`}
    </section>
    <${Others} cluster=${state.cluster} />
    <${Throughput} summary=${summary} requests=${state.requests} />
  `;
}

/** What to do where no model is loaded. */
function Nothing({ known }) {
  if (!known) return html`<p class="empty">Looking …</p>`;
  return html`<div class="empty">
    <p>No model is loaded. A request loads the one that it names; <a href="#/models">or load one here</a>.</p>
    <p class="small">OpenAI clients use the base URL <code>${location.origin}/v1</code>. <a href="#/playground">The playground</a> is one.</p>
  </div>`;
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
  if (!state.known) return null;
  return html`<dl class="tiles">
    <div class="tile"><dt>Models ready</dt><dd>${ready} <small>${also || `of ${models.length}`}</small></dd></div>
    <div class="tile"><dt>Requests</dt><dd>${count(requests.length - waiting)} <small>at work, ${count(waiting)} waiting</small></dd></div>
    <div class="tile"><dt>Speed now</dt><dd>${speed(together(state.requests))} <small>${requests.length > waiting ? "in all" : "nothing is at work"}</small></dd></div>
    <div class="tile"><dt>Running for</dt><dd>${status ? duration(at - status.started_at) : "–"} <${EngineBuild} status=${status} /></dd></div>
  </dl>`;
}

function EngineBuild({ status }) {
  if (status && !status.engine) return html`<small class="bad">no engine found: <a href="#/settings">Settings</a></small>`;
  return status?.engine?.build ? html`<small>llama.cpp b${status.engine.build}</small>` : null;
}

/** Models with what they do, and what can be done with them. `summary`: of the last hour, for their speed. */
export function ModelTable({ models, summary, onError }) {
  const at = useClock();
  const { requests } = useStore();
  useEffect(() => watch("speeds"), []);
  return html`<table class="stack">
    <thead>
      <tr>
        <th scope="col">Model</th><th scope="col">State</th><th scope="col" class="number" title="tokens of one request at most">Context</th>
        <th scope="col" class="number">At work</th><th scope="col" class="number">Waiting</th>
        <th scope="col" class="number">Speed</th>
        <th scope="col" class="number">Memory</th><th scope="col" class="number" title="–: when its room is needed, or when you unload it">Leaves in</th>
        <th scope="col"><span class="unseen">Actions</span></th>
      </tr>
    </thead>
    <tbody>
      ${models.map(
        (one) => html`<tr key=${one.id}>
          <th scope="row"><a class="break" href=${placeOf(one.id)}>${one.id}</a></th>
          <td data-name="State"><${Doing} model=${one} /></td>
          <${Figure} name="Context" told=${tokens(one.n_ctx)} />
          <${Figure} name="At work" told=${`${one.leases}${one.n_slots ? ` of ${one.n_slots}` : ""}`} />
          <${Figure} name="Waiting" told=${String(one.waiting)} />
          <${ModelSpeed} now=${together(requests, one.id)} usual=${summary?.models[one.id]?.tokens_per_second?.p50} />
          <${Figure} name="Memory" told=${bytes(held(one))} />
          <${Figure} name="Leaves in" told=${one.pinned ? "pinned" : one.expires_at ? duration(one.expires_at - at) : "–"} />
          <td class="actions"><${ModelActions} model=${one} onError=${onError} small /></td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/** A cell; a phone leaves it out where it says nothing. */
function Figure({ name, told }) {
  return html`<td class=${told === "–" || told === "0" ? "number nothing" : "number"} data-name=${name}>${told}</td>`;
}

/** The speed of its running requests together, or else what was usual in the last hour. */
function ModelSpeed({ now, usual }) {
  if (now === null) return html`<td class=${usual ? "number muted" : "number nothing"} data-name="Speed" title="the median of the last hour">${speed(usual)}</td>`;
  return html`<td class="number" data-name="Speed" title="of its running requests together">${speed(now)}</td>`;
}

/** Tokens per second of the running requests together, of all or of one model; null where none writes. */
function together(requests, model = null) {
  const speeds = [...requests.values()].filter((one) => !model || one.model === model).map((one) => one.tokens_per_second);
  return speeds.reduce((sum, one) => sum + one, 0) || null;
}

/** State and progress of a model, and the code of its failure. */
export function Doing({ model }) {
  return html`<span><${State} of=${model.state} stage=${model.stage} />
    ${model.error && html` <code class="small" title=${model.error.message}>${model.error.code}</code>`}
    ${model.progress !== null && model.state !== "ready" &&
    html`<progress aria-label=${`Progress of ${model.id}`} max="1" value=${model.progress}></progress>`}</span>`;
}

/** Bytes that a model holds on all devices, without what is kept back for it: measured, else planned. */
function held(model) {
  if (model.footprint) return Object.values(model.footprint).reduce((sum, one) => sum + one, 0);
  return model.plan ? model.plan.parts.reduce((sum, one) => sum + one.total_bytes - one.reserve_bytes, 0) : null;
}
