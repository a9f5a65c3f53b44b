// The installations of llama-server, and which of them starts the next models.

import { html, useEffect, useRef, useState } from "./preact.js";
import { Refused, call, events, get, post } from "./api.js";
import { refreshStatus } from "./live.js";
import { clock, percent } from "./format.js";
import { Act, Problem } from "./widgets.js";

export function Engines({ status }) {
  const [engines, setEngines] = useState(null);
  const [error, setError] = useState(null);
  const took = (answer) => setEngines(answer.engines);
  useEffect(() => {
    get("/api/v1/engines").then(took, setError);
  }, []);
  const use = async (name) => {
    took(await post("/api/v1/engines/use", { name }));
    await refreshStatus();
  };
  const named = status?.engine && !["chosen", "installed"].includes(status.engine.source);
  return html`<section class="card" aria-labelledby="engines">
    <header><h2 id="engines">Engines</h2><span class="small muted">the chosen one starts the next models; those that are loaded stay with theirs</span></header>
    <${Problem} error=${error} />
    ${named && html`<p class="small muted">In use now is <code class="break">${status.engine.path}</code>, named by ${status.engine.source}, which goes before the choice here.</p>`}
    ${engines?.length > 0 && html`<${EngineTable} engines=${engines} use=${use} onError=${setError} />`}
    ${engines?.length === 0 && html`<p class="empty">None is installed here.</p>`}
    <${Making} done=${took} onError=${setError} />
  </section>`;
}

function EngineTable({ engines, use, onError }) {
  return html`<table class="stack">
    <thead>
      <tr><th scope="col">Engine</th><th scope="col">Build</th><th scope="col">Back end</th><th scope="col">From</th>
        <th scope="col">Installed</th><th scope="col"><span class="unseen">Actions</span></th></tr>
    </thead>
    <tbody>
      ${engines.map(
        (one) => html`<tr key=${one.name}>
          <th scope="row" class="break">${one.name}</th>
          <td data-name="Build">${one.build ? `b${one.build}` : "–"}</td>
          <td data-name="Back end">${one.backend}</td>
          <td data-name="From" class="break">${one.source}</td>
          <td data-name="Installed">${clock(one.made_at)}</td>
          <td class="actions">
            ${one.current
              ? html`<span class="pill">chosen</span>`
              : html`<${Act} class="quiet" aria-label=${`Use ${one.name}`} onError=${onError} run=${() => use(one.name)}>Use</${Act}>`}
          </td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

const BACKENDS = { auto: "the best of this machine", cpu: "CPU", cuda: "CUDA", hip: "HIP", vulkan: "Vulkan", metal: "Metal" };
const ROUTES = { auto: "the official build, else compiled here", release: "the official build", source: "compiled here" };

/** Installs another engine beside the others. It belongs to this page: who leaves ends it. */
function Making({ done, onError }) {
  const [backend, setBackend] = useState("auto");
  const [route, setRoute] = useState("auto");
  const [step, setStep] = useState(null);
  const leaving = useRef(null);
  useEffect(() => () => leaving.current?.abort(), []);
  const make = async () => {
    const here = (leaving.current = new AbortController());
    onError(null);
    setStep({ stage: "begins", fraction: null, detail: "" });
    try {
      const asked = { accept: "text/event-stream", signal: here.signal };
      for await (const { data } of events(await call("POST", "/api/v1/engines", { backend, route }, asked))) {
        if (data.state === "failed") throw new Refused(500, data.error);
        if (data.state === "done") done(data);
        else setStep(data);
      }
    } catch (fault) {
      if (!here.signal.aborted) onError(fault);
    }
    if (!here.signal.aborted) setStep(null);
  };
  const stop = () => {
    leaving.current.abort();
    setStep(null);
  };
  const choice = (name, value, set, all) => html`<label>${name}
    <select value=${value} onChange=${(event) => set(event.target.value)}>
      ${Object.entries(all).map(([id, told]) => html`<option key=${id} value=${id}>${told}</option>`)}
    </select>
  </label>`;
  if (!step) {
    return html`<fieldset>
      <legend class="unseen">Another engine</legend>
      ${choice("Another one for", backend, setBackend, BACKENDS)}
      ${choice("As", route, setRoute, ROUTES)}
      <button type="button" onClick=${make}>Install</button>
    </fieldset>`;
  }
  return html`<div class="row">
    <div class="grow">
      <progress aria-label="Installation" max="1" value=${step.fraction ?? undefined}></progress>
      <p class="small muted" role="status">${step.stage}${step.fraction === null ? "" : ` · ${percent(step.fraction)}`} ${step.detail}</p>
    </div>
    <button type="button" class="danger" onClick=${stop}>Cancel</button>
  </div>`;
}
