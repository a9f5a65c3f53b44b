// Where a model would go, before it is loaded: drawn anew for every choice.

import { html, useEffect, useMemo, useState } from "./preact.js";
import { post } from "./api.js";
import { useStore } from "./store.js";
import { bytes, count, plural, speed, tokens } from "./format.js";
import { PlanBars, Shortages } from "./bars.js";
import { Code, Problem, useCalm } from "./widgets.js";

const CACHE_TYPES = ["f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "f32"];
const LEAST = 1024;
const USUAL = 131072; // what the slider goes to until a plan says what the model was trained for
const CALM_MS = 120; // a choice that is still changing is not planned yet

/** `loaded`: the model, if it has an engine. `told`: why its last load failed, which stands on the page already. */
export function Planner({ target, onLoad, busy, loaded, told }) {
  const { memory } = useStore();
  const [chosen, setChosen] = useState({});
  const [look, setLook] = useState(0);
  const { plan, error, planning } = usePlan(target, chosen, look);
  const free = Object.keys(chosen).length > 0;
  const choose = (name, value) =>
    setChosen((before) => {
      const { [name]: _, ...rest } = before;
      return value === null ? rest : { ...rest, [name]: value };
    });
  return html`<section class="card" aria-labelledby="plan" aria-busy=${planning}>
    <header>
      <h2 id="plan">Plan</h2>
      <span class="small muted">${planning ? "planning …" : plan ? (plan.learned ? "learned from earlier starts" : "computed from the header") : ""}</span>
    </header>
    ${(free || !error) && html`<${Choices} chosen=${chosen} choose=${choose} plan=${plan?.fits ? plan : null} />`}
    ${error && error.code === told?.code ? html`<p class="bad" role="alert">There is no plan, for the same reason (<code>${error.code}</code>).</p>` : html`<${Problem} error=${error} title="There is no plan" />`}
    ${plan && html`<${Outcome} plan=${plan} devices=${memory?.devices} />`}
    ${((plan && !plan.fits) || chosen.overcommit) &&
    html`<label class="check"><input type="checkbox" checked=${Boolean(chosen.overcommit)} onChange=${() => choose("overcommit", chosen.overcommit ? null : "mmap")} />
      Read weights from the disk again and again, which is slow</label>`}
    <div class="row">
      <button type="button" class="main" disabled=${busy || !plan || (!plan.fits && !plan.later) || (loaded && !free)} onClick=${() => onLoad(chosen)}>
        ${loaded ? "Load anew with this" : "Load"}
      </button>
      ${free && html`<button type="button" onClick=${() => setChosen({})}>Choose automatically</button>`}
      ${(error || plan?.fits === false) && html`<button type="button" onClick=${() => setLook(look + 1)}>Plan again</button>`}
      ${loaded && html`<span class="small muted">${loaded.state === "ready" ? "It is loaded; with another choice it can be started anew." : "It is on its way; with another choice it can be started anew."}</span>`}
    </div>
    ${plan?.fits && html`<${Details} plan=${plan} />`}
    <${Variants} variants=${plan?.variants ?? []} />
  </section>`;
}

/** The plan for these choices, asked for anew with every `look`. An answer that comes after a later choice is dropped. */
function usePlan(target, chosen, look) {
  const wanted = JSON.stringify([chosen, look]);
  const calm = useCalm(wanted, CALM_MS);
  const [found, setFound] = useState({ plan: null, error: null, of: null });
  useEffect(() => {
    const leaving = new AbortController();
    const [options] = JSON.parse(calm);
    const asked = { target, ...(Object.keys(options).length ? { options } : {}) };
    post("/api/v1/plan", asked, { signal: leaving.signal }).then(
      (plan) => setFound({ plan, error: null, of: calm }),
      (error) => leaving.signal.aborted || setFound((before) => ({ ...before, plan: null, error, of: calm })),
    );
    return () => leaving.abort();
  }, [target, calm]);
  return { ...found, planning: found.of !== wanted };
}

/** The sizes of context that the slider has: two for every doubling, and what is native. */
function stops(native) {
  const found = [];
  for (let size = LEAST; size < native; size *= 2) {
    found.push(size);
    if (size * 1.5 < native) found.push(size * 1.5);
  }
  return [...found, native];
}

function Choices({ chosen, choose, plan }) {
  const [native, setNative] = useState(USUAL);
  useEffect(() => {
    if (plan) setNative(Math.max(plan.native_ctx, LEAST));
  }, [plan?.native_ctx]);
  const sizes = useMemo(() => stops(native), [native]);
  const size = chosen.ctx_size ?? plan?.ctx_size ?? null;
  const at = sizes.reduce((best, one, index) => (Math.abs(one - (size ?? LEAST)) < Math.abs(sizes[best] - (size ?? LEAST)) ? index : best), 0);
  return html`<fieldset>
    <legend class="unseen">What is chosen for the plan</legend>
    <label class="whole">Context of all slots: ${size === null ? "automatic" : `${count(size)} tokens${chosen.ctx_size ? "" : ", chosen automatically"}`}
      <input type="range" min="0" max=${sizes.length - 1} value=${at}
        aria-valuetext=${size === null ? "automatic" : `${count(size)} tokens`} onInput=${(event) => choose("ctx_size", sizes[event.target.value])} />
    </label>
    ${[["cache_type_k", "Type of K"], ["cache_type_v", "Type of V"]].map(
      ([name, told]) => html`<label key=${name}>${told}
        <select value=${chosen[name] ?? ""} onChange=${(event) => choose(name, event.target.value || null)}>
          <option value="">automatic${plan && !chosen[name] ? ` (${plan[name]})` : ""}</option>
          ${CACHE_TYPES.map((type) => html`<option key=${type} value=${type}>${type}</option>`)}
        </select>
      </label>`,
    )}
  </fieldset>`;
}

function Outcome({ plan, devices }) {
  if (!plan.fits) {
    return html`<div class=${plan.later ? "note warn" : "note bad"} role="status">
        <strong>${plan.later ? "It does not fit now" : "It does not fit"}</strong>
        <div>${plan.message}</div>
        ${plan.blocking_models.length > 0 && html`<div>In its way: ${plan.blocking_models.join(", ")}.</div>`}
        ${plan.hints.length > 0 && html`<ul class="reasons">${plan.hints.map((hint) => html`<li key=${hint}>${hint}</li>`)}</ul>`}
      </div>
      <${Shortages} shortages=${plan.shortages} />`;
  }
  const onHost = plan.parts.at(-1).layers > 0 || !plan.devices.length ? ["CPU"] : [];
  const where = [...plan.devices, ...onHost].join(", ");
  const total = plan.parts.reduce((sum, part) => sum + part.total_bytes, 0);
  return html`<div class="note" role="status">
      <strong>It fits on ${where}: ${bytes(total)} with ${tokens(plan.request_ctx)} tokens per request</strong>
      ${plan.evict_models.length > 0 && html`<div class="warn">Leaves for it: ${plan.evict_models.join(", ")}.</div>`}
      ${plan.speed && html`<${Speed} speed=${plan.speed} />`}
      <ul class="reasons small">${plan.why.map((one) => html`<li key=${one}>${one}</li>`)}</ul>
      ${plan.note && html`<div>${plan.note}</div>`}
      ${plan.problems.map((one) => html`<div class="warn small" key=${one.probe}>${one.probe}: ${one.message}</div>`)}
    </div>
    <${PlanBars} plan=${plan} devices=${devices} />`;
}

const FROM = {
  published: "a first guess from published figures; bench measures this machine",
  learned: "from this model's earlier requests",
  measured: "from what bench measured on this machine",
};

/** How fast it will be, where the daemon foretells it. */
function Speed({ speed: foretold }) {
  const depths = Object.entries(foretold.decode_tokens_per_second ?? {});
  const first = depths.length ? depths[0][1] : null;
  return html`<div>
    ${first !== null && `Writes ≈ ${speed(first)}`}${foretold.prefill_tokens_per_second ? `, reads prompts at ≈ ${speed(foretold.prefill_tokens_per_second)}` : ""}
    ${foretold.from ? html` <span class="small muted">(${FROM[foretold.from] ?? foretold.from})</span>` : ""}
  </div>`;
}

function Details({ plan }) {
  const command = ["llama-server", ...plan.arguments].map((one) => (/^[\w@%+=:,./-]+$/.test(one) ? one : `'${one.replaceAll("'", "'\\''")}'`));
  return html`<details>
    <summary>By device and part, and the command</summary>
    <div class="scroll" tabindex="0" role="group" aria-label="The plan by part">
      <table>
        <thead><tr><th scope="col">Device</th>${FIELDS.map(([, name]) => html`<th scope="col" class="number" key=${name}>${name}</th>`)}</tr></thead>
        <tbody>
          ${plan.parts.map(
            (part) => html`<tr key=${part.name}>
              <th scope="row">${part.name}</th>
              ${FIELDS.map(([field]) => html`<td class="number" key=${field}>${part[field] ? bytes(part[field]) : "–"}</td>`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <${Code} label="Command" text=${command.join(" ")} />
  </details>`;
}

const FIELDS = [
  ["weights_bytes", "Weights"],
  ["kv_bytes", "KV"],
  ["recurrent_bytes", "State"],
  ["compute_bytes", "Compute"],
  ["output_bytes", "Output"],
  ["projector_bytes", "Projector"],
  ["draft_bytes", "Draft"],
  ["reserve_bytes", "Kept back"],
  ["total_bytes", "Total"],
  ["left_bytes", "Left"],
];

function Variants({ variants }) {
  if (!variants.length) return null;
  return html`<details>
    <summary>${plural(variants.length, "variant")} in the repository</summary>
    <table class="stack">
      <thead><tr><th scope="col">Variant</th><th scope="col" class="number">Size</th><th scope="col">Here</th></tr></thead>
      <tbody>
        ${variants.map(
          (one) => html`<tr key=${one.name}>
            <th scope="row">${one.name} ${one.chosen && html`<span class="pill">chosen</span>`}</th>
            <td class="number" data-name="Size">${bytes(one.size_bytes)}</td>
            <td data-name="Here">${one.well ? "fits well" : one.fits ? "fits" : one.fits === false ? "does not fit" : ""} <span class="muted small">${one.note}</span></td>
          </tr>`,
        )}
      </tbody>
    </table>
  </details>`;
}
