// The requests that have ended: as a table with filters, as percentiles, as a curve over time.

import { html, useEffect, useState } from "./preact.js";
import { call, get } from "./api.js";
import { now } from "./store.js";
import { clock, count, duration, plural, speed } from "./format.js";
import { Act, Problem, placeOf } from "./widgets.js";

const SPANS = { 3600: "the last hour", 86400: "the last day", 604800: "the last week" };
const PAGE = 50; // requests of one page
const BUCKETS = 60;
const AGAIN_MS = 10000; // between two looks at the last hour
const FRESH_MS = 4000; // until a request that has ended is in the table

/** What the requests of the last hour come to, looked at again and again; null until it is known. */
export function useSummary() {
  const [found, setFound] = useState(null);
  useEffect(() => {
    const leaving = new AbortController();
    const look = () => {
      if (document.hidden) return;
      get(`/api/v1/history/summary?buckets=${BUCKETS}`, { signal: leaving.signal }).then(setFound, () => {});
    };
    look();
    const timer = setInterval(look, AGAIN_MS);
    return () => {
      clearInterval(timer);
      leaving.abort();
    };
  }, []);
  return found;
}

/** Tokens per second over the last hour. `requests`: those in flight, which are in no summary yet. */
export function Throughput({ summary, requests }) {
  const sums = summary?.all;
  const written = summary && withRunning(summary, [...requests.values()]);
  return html`<section class="card" aria-labelledby="throughput">
    <header>
      <h2 id="throughput">Throughput</h2>
      <span class="small muted">the last hour${sums ? `: ${plural(sums.requests, "request")}, ${plural(sums.completion_tokens, "token")} written, ${count(sums.prompt_tokens)} read` : ""}</span>
    </header>
    ${written?.some(Boolean) || sums?.requests ? html`<${Curve} summary=${summary} written=${written} />` : html`<p class="empty">${summary ? "Nothing was asked in the last hour." : "Looking …"}</p>`}
  </section>`;
}

/** Tokens written in each part of the time, with those of answers that go on: up to now, at their own speed. */
export function withRunning({ over_time: { bucket_seconds: width, completion_tokens: written } }, requests) {
  const sums = [...written];
  for (const { completion_tokens: come, tokens_per_second: rate } of requests) {
    let left = rate ? come : 0;
    for (let at = sums.length - 1; at >= 0 && left > 0; at -= 1) {
      const part = Math.min(left, rate * width);
      sums[at] += part;
      left -= part;
    }
  }
  return sums;
}

const WIDTH = 600;
const HEIGHT = 100;

function Curve({ summary, written }) {
  const { bucket_seconds: width, requests } = summary.over_time;
  const rates = written.map((tokens) => tokens / width);
  const most = Math.max(...rates, 0);
  const top = most || 1;
  const step = WIDTH / rates.length;
  const points = rates.flatMap((rate, at) => [at, at + 1].map((edge) => `${edge * step},${HEIGHT - (rate / top) * HEIGHT}`));
  const told = `Tokens written per second over the last hour: at most ${speed(most)}, in the last minute ${speed(rates.at(-1))}; ${plural(requests.reduce((sum, one) => sum + one, 0), "request")}.`;
  return html`<div>
    <svg class="chart" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${told}>
      <line class="axis" x1="0" x2=${WIDTH} y1=${HEIGHT} y2=${HEIGHT} />
      <line class="axis" x1="0" x2=${WIDTH} y1="0" y2="0" />
      <polygon class="area" points=${`0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`} />
      <polyline class="curve" points=${points.join(" ")} />
    </svg>
    <div class="ends small muted"><span>${clock(summary.since)}</span><span>at most ${speed(most)}, last minute ${speed(rates.at(-1))}</span><span>now</span></div>
  </div>`;
}

/** Everything of the history: percentiles, filters, the table. */
export function History({ models }) {
  const [wanted, setWanted] = useState({ span: "3600", model: "", failed: "" });
  const [rows, setRows] = useState([]);
  const [next, setNext] = useState(null);
  const [summary, setSummary] = useState(null);
  const [error, setError] = useState(null);
  const query = queryOf(wanted);
  const look = async (before) => {
    const answer = await get(`/api/v1/history?limit=${PAGE}${query}${before ? `&before=${before}` : ""}`);
    setRows((shown) => (before ? [...shown, ...answer.requests] : answer.requests));
    setNext(answer.next);
  };
  const refresh = async () => {
    await look(null);
    setSummary(await get(`/api/v1/history/summary?buckets=1${query}`));
    setError(null);
  };
  useEffect(() => {
    refresh().catch(setError);
  }, [JSON.stringify(wanted)]);
  useEffect(() => {
    let seen = now().ended;
    const timer = setInterval(() => {
      if (document.hidden || seen === now().ended || rows.length > PAGE) return; // older ones are being read
      seen = now().ended;
      refresh().catch(setError);
    }, FRESH_MS);
    return () => clearInterval(timer);
  }, [JSON.stringify(wanted), rows.length > PAGE]);
  const set = (name) => (event) => setWanted({ ...wanted, [name]: event.target.value });
  return html`<section class="card" aria-labelledby="history">
    <header>
      <h2 id="history">History</h2>
      <span class="row small">
        <${Act} class="quiet" onError=${setError} run=${() => save("csv", query)}>Save as CSV</${Act}>
        <${Act} class="quiet" onError=${setError} run=${() => save("jsonl", query)}>as JSONL</${Act}>
      </span>
    </header>
    <fieldset>
      <legend class="unseen">Which requests</legend>
      <label>Arrived in
        <select value=${wanted.span} onChange=${set("span")}>
          ${Object.entries(SPANS).map(([seconds, told]) => html`<option key=${seconds} value=${seconds}>${told}</option>`)}
        </select>
      </label>
      <label>For the model
        <select value=${wanted.model} onChange=${set("model")}>
          <option value="">any</option>
          ${models.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select>
      </label>
      <label>With the error code<input value=${wanted.failed} onInput=${set("failed")} placeholder="any outcome" spellcheck="false" /></label>
      <${Act} run=${refresh} onError=${setError}>Look again</${Act}>
    </fieldset>
    <${Problem} error=${error} />
    ${summary && html`<${Percentiles} sums=${summary.all} />`}
    ${rows.length ? html`<${Ended} rows=${rows} />` : html`<p class="empty">None that has ended is like that.</p>`}
    ${next && html`<div class="row"><${Act} run=${() => look(next)} onError=${setError}>Show older ones</${Act}></div>`}
  </section>`;
}

function queryOf({ span, model, failed }) {
  const since = Math.floor(Date.now() / 1000 - Number(span));
  return `&since=${since}${model ? `&model=${encodeURIComponent(model)}` : ""}${failed ? `&code=${encodeURIComponent(failed)}` : ""}`;
}

/** Save all that is wanted as a file: by a call, because a link would carry no key. */
async function save(format, query) {
  const response = await call("GET", `/api/v1/history/export?format=${format}${query}`);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = `requests.${format}`;
  link.click();
  URL.revokeObjectURL(link.href);
}

const MEASURES = [
  ["seconds", "Whole answer", duration],
  ["queued", "Waited", duration],
  ["first", "First token after", duration],
  ["tokens_per_second", "Tokens per second", speed],
];

function Percentiles({ sums }) {
  return html`<table class="narrow">
    <caption class="unseen">Percentiles of the requests</caption>
    <thead>
      <tr><th scope="col">${plural(sums.requests, "request")}, ${count(sums.errors)} failed</th>
        <th scope="col" class="number">median</th><th scope="col" class="number">p90</th><th scope="col" class="number">p99</th></tr>
    </thead>
    <tbody>
      ${MEASURES.map(
        ([field, name, show]) => html`<tr key=${field}>
          <th scope="row">${name}</th>
          ${["p50", "p90", "p99"].map((one) => html`<td class="number" key=${one}>${sums[field] ? show(sums[field][one]) : "–"}</td>`)}
        </tr>`,
      )}
    </tbody>
  </table>`;
}

function Ended({ rows }) {
  return html`<table class="stack">
    <caption class="unseen">Requests that have ended</caption>
    <thead>
      <tr><th scope="col">Arrived</th><th scope="col">Model</th><th scope="col">Path</th><th scope="col">Outcome</th>
        <th scope="col" class="number">Prompt + answer</th><th scope="col" class="number">First token</th><th scope="col" class="number">Speed</th>
        <th scope="col" class="number">Took</th></tr>
    </thead>
    <tbody>
      ${rows.map(
        (one) => html`<tr key=${one.id}>
          <th scope="row"><span title=${one.request_id}>${clock(one.at)}</span>${one.key && html` <span class="pill">${one.key}</span>`}</th>
          <td data-name="Model">${one.model ? html`<a class="break" href=${placeOf(one.model)}>${one.model}</a>` : "–"}</td>
          <td data-name="Path"><code>${one.path}</code></td>
          <td data-name="Outcome" class=${one.code ? "bad" : ""}>${one.code ?? one.finish ?? one.status}${one.calls ? `, ${plural(one.calls, "call")}` : ""}</td>
          <td class=${one.prompt_tokens === null && one.completion_tokens === null ? "number nothing" : "number"} data-name="Prompt + answer" title=${`${count(one.cached_tokens)} of the prompt from the cache`}>${one.prompt_tokens === null && one.completion_tokens === null ? "–" : `${count(one.prompt_tokens)} + ${count(one.completion_tokens)}`}</td>
          <td class=${one.first === null ? "number nothing" : "number"} data-name="First token">${duration(one.first)}</td>
          <td class=${one.tokens_per_second === null ? "number nothing" : "number"} data-name="Speed">${speed(one.tokens_per_second)}</td>
          <td class="number" data-name="Took">${duration(one.seconds)}</td>
        </tr>`,
      )}
    </tbody>
  </table>`;
}

/** What happened to a model's engines: starts, ends, failures with their reason. `moment`: look again when it changes. */
export function Happened({ model, moment }) {
  const [events, setEvents] = useState(null);
  useEffect(() => {
    get(`/api/v1/history/loads?limit=20&model=${encodeURIComponent(model)}`).then((answer) => setEvents(answer.loads), () => {});
  }, [model, moment]);
  if (!events?.length) return null;
  return html`<section class="card" aria-labelledby="happened">
    <header><h2 id="happened">What happened to it</h2><span class="small muted">the newest first</span></header>
    <table class="stack">
      <thead><tr><th scope="col">When</th><th scope="col">Event</th><th scope="col">Why</th></tr></thead>
      <tbody>
        ${events.map(
          (one) => html`<tr key=${one.id}>
            <th scope="row">${clock(one.at)}</th>
            <td data-name="Event" class=${one.code ? "bad" : ""}>${one.event.replaceAll("_", " ")}${one.seconds ? `, after ${duration(one.seconds)}` : ""}</td>
            <td data-name="Why" class=${one.code || one.reason ? "break" : "break nothing"}>${one.code && html`<code>${one.code}</code>`} ${one.reason ?? ""}</td>
          </tr>`,
        )}
      </tbody>
    </table>
  </section>`;
}
