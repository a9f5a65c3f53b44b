// Logs of models and of the daemon, as they are written.

import { html, useEffect, useRef, useState } from "./preact.js";
import { call, get, lines, post } from "./api.js";
import { useStore } from "./store.js";
import { Problem } from "./widgets.js";

const MOST = 2000; // lines that are kept here
const LEVELS = ["debug", "info", "warning", "error"];

export function Logs({ target }) {
  const { models } = useStore();
  const [model, setModel] = useState(target || "");
  const [words, setWords] = useState("");
  const names = [...models.keys()];
  if (model && !models.has(model)) names.push(model);
  return html`
    <div class="head"><h1>Logs</h1></div>
    <section class="card" aria-label="Log">
      <fieldset>
        <legend class="unseen">Which lines</legend>
        <label>Of
          <select value=${model} onChange=${(event) => setModel(event.target.value)}>
            <option value="">the daemon</option>
            ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
          </select>
        </label>
        <label class="grow">Only lines with<input type="search" value=${words} onInput=${(event) => setWords(event.target.value)} /></label>
        ${!model && html`<${Level} />`}
      </fieldset>
      <${LogTail} key=${model} model=${model} words=${words} />
    </section>
  `;
}

/** The end of a log, which goes on. It follows the newest line until somebody scrolls up. */
export function LogTail({ model, words = "", short }) {
  const [kept, setKept] = useState([]);
  const [error, setError] = useState(null);
  const box = useRef(null);
  const follows = useRef(true);
  useEffect(() => {
    const leaving = new AbortController();
    read(model, leaving.signal, setKept).catch((fault) => leaving.signal.aborted || setError(fault));
    return () => leaving.abort();
  }, [model]);
  useEffect(() => {
    if (follows.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [kept, words]);
  const scrolled = ({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
    follows.current = scrollHeight - scrollTop - clientHeight < 40;
  };
  const wanted = words.toLowerCase();
  const shown = wanted ? kept.filter((line) => line.text.toLowerCase().includes(wanted)) : kept;
  return html`<${Problem} error=${error} />
    <div class=${short ? "log short" : "log"} role="log" aria-live="off" aria-label=${`Log of ${model || "the daemon"}`} tabindex="0" ref=${box} onScroll=${scrolled}>
      ${shown.map((line) => html`<div key=${line.number}>${line.text}</div>`)}
      ${!shown.length && html`<span class="muted">${kept.length ? "No line has this text." : "Nothing is written here yet."}</span>`}
    </div>`;
}

/** Follow a log; lines that come together are shown together. */
async function read(model, signal, setKept) {
  const of = model ? `model=${encodeURIComponent(model)}&` : "";
  const response = await call("GET", `/api/v1/logs?${of}lines=500&follow=true`, undefined, { signal });
  let fresh = [];
  let number = 0;
  let frame = 0;
  const show = () => {
    frame = 0;
    const come = fresh;
    fresh = [];
    setKept((kept) => [...kept, ...come].slice(-MOST));
  };
  for await (const text of lines(response)) {
    fresh.push({ number: (number += 1), text });
    frame ||= requestAnimationFrame(show);
  }
}

function Level() {
  const [level, setLevel] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    get("/api/v1/logs/level").then((answer) => setLevel(answer.level), setError);
  }, []);
  const change = (event) => {
    const wanted = event.target.value;
    post("/api/v1/logs/level", { level: wanted }).then((answer) => setLevel(answer.level), setError);
  };
  return html`<label>Level
      <select value=${level ?? ""} disabled=${!level} onChange=${change}>
        ${LEVELS.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
    </label>
    <${Problem} error=${error} />`;
}
