// One model, or whatever else can be loaded: its plan, its load, its settings, why it failed.

import { html, useEffect, useState } from "./preact.js";
import { get } from "./api.js";
import { now, putIn, useStore } from "./store.js";
import { watch } from "./live.js";
import { bytes, clock, duration, plural, tokens } from "./format.js";
import { Problem, State } from "./widgets.js";
import { ModelActions, load, unload } from "./actions.js";
import { Planner } from "./planner.js";
import { LogTail } from "./logs.js";
import { SettingsTable } from "./settings.js";
import { Happened } from "./history.js";

const IDLE = new Set(["unloaded", "failed", "backoff"]);

export function Model({ target }) {
  const { models, loads } = useStore();
  const [error, setError] = useState(null);
  useEffect(() => watch("memory"), []);
  const begun = loads.get(target);
  const model = models.get(target) ?? models.get(begun?.status?.id) ?? null;
  const idle = !model || IDLE.has(model.state);
  const going = begun && !begun.done;
  const start = (options) => load(target, options);
  const shown = model ?? (going ? begun.status : null);
  const loading = going || (model && !idle && model.state !== "ready");
  return html`
    <div class="head">
      <h1 class="break">${target}</h1>
      ${model && html`<${State} of=${model.state} />`}
      ${model?.pinned && html`<span class="pill">pinned</span>`}
      <span class="push row">
        ${model?.state === "ready" && html`<a class="button" href=${`#/playground/${encodeURIComponent(model.id)}`}>Chat</a>`}
        ${model && html`<${ModelActions} model=${model} onError=${setError} cancels=${!loading} />`}
      </span>
    </div>
    <${Problem} error=${error} />
    ${loading && html`<${Loading} model=${shown} target=${target} onError=${setError} />`}
    <${Failure} model=${model} begun=${begun} target=${target} />
    <div class="columns">
      <${Planner} target=${target} onLoad=${start} busy=${Boolean(going)} loaded=${model && !idle ? model : null} told=${model?.error} />
      ${model && html`<${Facts} model=${model} />`}
    </div>
    ${model && html`<${Effective} model=${model} />`}
    ${model && html`<${Happened} model=${model.id} moment=${`${model.state}/${model.failed_at}`} />`}
    ${model && html`<section class="card" aria-labelledby="log"><header><h2 id="log">Log</h2><a href=${`#/logs/${encodeURIComponent(model.id)}`}>Whole log</a></header><${LogTail} model=${model.id} short /></section>`}
  `;
}

/** A load as it goes, or a download before it. */
function Loading({ model, target, onError }) {
  const download = model?.download;
  const value = download && download.total_bytes ? download.done_bytes / download.total_bytes : model?.progress;
  const stop = async () => {
    try {
      await unload(model?.id ?? target, true);
    } catch (error) {
      onError(error);
    }
  };
  return html`<section class="card" aria-labelledby="loading">
    <header>
      <h2 id="loading">${download ? "Downloading" : model?.state === "draining" || model?.state === "stopping" ? "Leaving" : "Loading"}</h2>
      <button type="button" class="danger" onClick=${stop}>Cancel</button>
    </header>
    <progress aria-labelledby="loading" max="1" value=${value ?? undefined}></progress>
    <p class="small muted" role="status">
      ${model?.stage ? model.stage.replaceAll("_", " ") : "waiting for room"}
      ${value !== null && value !== undefined && ` · ${Math.round(100 * value)} %`}
      ${download && ` · ${bytes(download.done_bytes)} of ${bytes(download.total_bytes)}, ${bytes(download.bytes_per_second)}/s${download.from?.startsWith("node ") ? ` from ${download.from}` : ""}, ${duration(download.eta_seconds)} left`}
    </p>
  </section>`;
}

/** Why the last load failed, and what was tried. */
function Failure({ model, begun, target }) {
  const error = model?.error ?? (begun?.done ? begun.error : null);
  const tried = model?.fallbacks?.length ? model.fallbacks : (begun?.status?.fallbacks ?? []);
  if (!error && !tried.length) return null;
  return html`<section class="card" aria-labelledby="failure">
    <header>
      <h2 id="failure">${error ? "Why it failed" : "Started otherwise than configured"}</h2>
      ${model?.failed_at && html`<span class="small muted">${clock(model.failed_at)}</span>`}
      ${begun?.done && !model?.error && html`<button type="button" class="quiet" onClick=${() => putIn("loads", target, null)}>Dismiss</button>`}
    </header>
    <${Problem} error=${error} />
    ${tried.length > 0 &&
    html`<div><h3>What was tried</h3><ul class="reasons">${tried.map((step) => html`<li key=${step}>${step}</li>`)}</ul></div>`}
  </section>`;
}

function Facts({ model }) {
  const abilities = model.abilities;
  const rows = [
    ["Source", model.hub ?? model.path ?? "built in"],
    ["Also called", model.aliases.join(", ")],
    ["Size", model.size_bytes && bytes(model.size_bytes)],
    ["Context", model.n_ctx && `${tokens(model.n_ctx)} tokens per request, ${plural(model.n_slots, "slot")}`],
    ["Trained with", abilities && `${tokens(abilities.contexts.native)} tokens`],
    ["Takes", abilities && abilities.inputs.join(", ")],
    ["Tool calls", abilities && (abilities.tools ? `yes${abilities.tool_dialect ? `, ${abilities.tool_dialect}` : ""}` : "not by its template")],
    ["Reasoning", abilities?.thinking],
    ["Loaded", model.loaded_at && `${clock(model.loaded_at)}, in ${duration(model.load_seconds)}`],
    ["Process", model.pid && `${model.pid}, ${bytes(model.rss_bytes)} resident`],
    ["Engines", model.engines.length > 1 && model.engines.map((one) => `${one.engine} ${one.state}`).join(", ")],
    ["Note", model.note],
  ].filter(([, value]) => value);
  return html`<section class="card" aria-labelledby="facts">
    <header><h2 id="facts">Facts</h2></header>
    <dl class="facts">${rows.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>
  </section>`;
}

/** What is set for the model, and where each value comes from. */
function Effective({ model }) {
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const given = JSON.stringify(model.given);
  useEffect(() => {
    get(`/api/v1/config?model=${encodeURIComponent(model.id)}`).then(setAnswer, setError);
  }, [model.id, given, now().status?.config?.loaded_at]);
  return html`<section class="card" aria-labelledby="effective">
    <header><h2 id="effective">Settings</h2><span class="small muted">everything else is llama-server's default, or the plan's choice</span></header>
    <${Problem} error=${error} />
    ${answer && (answer.values.length ? html`<${SettingsTable} values=${answer.values} path=${answer.path} />` : html`<p class="empty">Nothing is set for this model.</p>`)}
  </section>`;
}
