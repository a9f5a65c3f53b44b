// Talk to one model, or to two side by side with the same words.

import { html, useEffect, useRef, useState } from "./preact.js";
import { hasKey } from "./api.js";
import { useStore } from "./store.js";
import { answers, asCurl, asPython, requestOf } from "./chat.js";
import { count, duration, speed } from "./format.js";
import { Code, Problem } from "./widgets.js";

const EXAMPLE_TOOLS = JSON.stringify(
  [
    {
      type: "function",
      function: {
        name: "get_weather",
        description: "The weather of a city.",
        parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      },
    },
  ],
  null,
  2,
);
const PLAIN = { system: "", temperature: "", max_tokens: "", tools: "" };

const DRAWN_MS = 50; // between two looks of an answer that grows

const AWAY = new Set(["unloaded", "failed", "backoff"]);

export function Playground({ target }) {
  const { models, names: allowed } = useStore();
  const [two, setTwo] = useState(false);
  const [settings, setSettings] = useState(PLAIN);
  const all = [...models.values()];
  const ready = all.filter((one) => one.state === "ready").map((one) => one.id);
  const names = all.length ? all.map((one) => one.id) : allowed;
  const left = useTalk(target || ready[0] || names[0] || "", settings);
  const right = useTalk(ready.find((one) => one !== left.model) ?? names.find((one) => one !== left.model) ?? left.model, settings);
  const talks = two ? [left, right] : [left];
  return html`
    <div class="head">
      <h1>Playground</h1>
      <span class="push row">
        <label class="check"><input type="checkbox" checked=${two} onChange=${() => setTwo(!two)} />Two models side by side</label>
        <button type="button" onClick=${() => talks.forEach((one) => one.clear())}>New conversation</button>
      </span>
    </div>
    <div class="panes">
      ${talks.map((talk, at) => html`<${Pane} key=${at} talk=${talk} names=${names} models=${models} number=${two ? at + 1 : 0} />`)}
    </div>
    <${Composer} talks=${talks} models=${models} />
    <${Parameters} settings=${settings} setSettings=${setSettings} />
    <${AsCode} talk=${left} settings=${settings} />
  `;
}

/** A conversation: what was said, what is being said, and how to go on. */
function useTalk(proposed, settings) {
  const [named, setModel] = useState("");
  const [messages, setMessages] = useState([]);
  const [growing, setGrowing] = useState(null);
  const [error, setError] = useState(null);
  const leaving = useRef(null);
  const model = named || proposed;
  useEffect(() => () => leaving.current?.abort(), []);
  const ask = async (before) => {
    const here = new AbortController();
    leaving.current = here;
    setMessages(before);
    setError(null);
    setGrowing({ role: "assistant", content: "", reasoning: "", tool_calls: [], stats: {} });
    let last = null;
    let drawing = 0;
    const draw = () => {
      drawing = 0;
      setGrowing(last);
    };
    try {
      for await (const answer of answers(requestOf(model, before, settings), here.signal)) {
        last = answer;
        drawing ||= setTimeout(draw, DRAWN_MS); // a model may be faster than any page can draw each token
      }
    } catch (fault) {
      if (here.signal.aborted) last = last && { ...last, stats: { ...last.stats, finish: "stopped" } };
      else setError(fault);
    }
    clearTimeout(drawing);
    setGrowing(null);
    if (last) setMessages([...before, { ...last, model }]);
  };
  return {
    model,
    setModel,
    messages,
    growing,
    error,
    say: (content) => ask([...messages, { role: "user", content }]),
    result: (id, content) => ask([...messages, { role: "tool", tool_call_id: id, content }]),
    stop: () => leaving.current?.abort(),
    clear: () => {
      leaving.current?.abort();
      setMessages([]);
      setError(null);
    },
  };
}

function Pane({ talk, names, models, number }) {
  const box = useRef(null);
  const { messages, growing } = talk;
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [messages, growing]);
  const label = number ? `Conversation ${number}` : "Conversation";
  return html`<section class="card" aria-label=${label}>
    <header>
      <label class="grow">${number ? `Model ${number}` : "Model"}
        <select value=${talk.model} onChange=${(event) => talk.setModel(event.target.value)}>
          ${(names.includes(talk.model) ? names : [talk.model, ...names]).map((name) => html`<option key=${name} value=${name}>${name}${AWAY.has(models.get(name)?.state) ? ` (${models.get(name).state})` : ""}</option>`)}
        </select>
      </label>
    </header>
    <div class="talk" ref=${box} role="log" aria-live="polite" aria-busy=${Boolean(growing)} aria-label=${`${label}: messages`} tabindex="0">
      ${!messages.length && !growing && html`<p class="empty">Nothing is said yet. A model that is not loaded is loaded by the first message.</p>`}
      ${messages.map((one, at) => html`<${Said} key=${at} message=${one} onResult=${at === messages.length - 1 ? talk.result : null} />`)}
      ${growing && html`<${Said} message=${growing} growing />`}
    </div>
    <${Problem} error=${talk.error} />
  </section>`;
}

function Said({ message, growing, onResult }) {
  const { role, content, reasoning, tool_calls: calls = [], stats } = message;
  const parts = typeof content === "string" ? [{ type: "text", text: content }] : (content ?? []);
  const empty = growing && !content && !reasoning && !calls.length;
  return html`<article class=${`said ${role}`}>
    <span class="who">${role === "user" ? "You" : role === "tool" ? "Result" : (message.model ?? "Model")}</span>
    ${reasoning && html`<details><summary>Reasoning${growing && !content ? " …" : ""}</summary><div class="thoughts">${reasoning}</div></details>`}
    ${parts.map((part, at) => (part.type === "image_url" ? html`<img key=${at} src=${part.image_url.url} alt="An image of yours" />` : part.text && html`<div key=${at} class="text">${part.text}</div>`))}
    ${empty && html`<span class="muted">waiting for the first token …</span>`}
    ${calls.map((one) => html`<${ToolCall} key=${one.id} call=${one} onResult=${onResult} />`)}
    ${stats && !growing && html`<span class="who">${statistics(stats)}</span>`}
  </article>`;
}

function statistics({ tokens, speed: rate, first, finish }) {
  return [
    tokens !== undefined && `${count(tokens)} tokens`,
    rate !== undefined && speed(rate),
    first !== undefined && `first after ${duration(first)}`,
    finish,
  ]
    .filter(Boolean)
    .join(" · ");
}

/** A call that the model wants made. Nothing runs it here: whoever reads it says what it gave. */
function ToolCall({ call, onResult }) {
  const [text, setText] = useState("");
  const give = (event) => {
    event.preventDefault();
    onResult(call.id, text);
  };
  return html`<div class="call">
    <div><span class="pill">tool call</span> <code>${call.function.name}</code></div>
    <pre class="code">${call.function.arguments}</pre>
    ${onResult &&
    html`<form class="row end" onSubmit=${give}>
      <label class="grow">Its result<input value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <button>Give</button>
    </form>`}
  </div>`;
}

function Composer({ talks, models }) {
  const [text, setText] = useState("");
  const [image, setImage] = useState(null);
  const busy = talks.some((one) => one.growing);
  const sees = talks.every((one) => models.get(one.model)?.abilities?.inputs.includes("image"));
  const send = (event) => {
    event.preventDefault();
    if (busy || !text.trim()) return;
    const content = image && sees ? [{ type: "text", text }, { type: "image_url", image_url: { url: image } }] : text;
    for (const talk of talks) talk.say(content);
    setText("");
    setImage(null);
  };
  const pressed = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  };
  return html`<form class="card" onSubmit=${send} aria-label="Your message">
    <label>Message <textarea rows="2" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${pressed}></textarea></label>
    <div class="row">
      ${busy
        ? html`<button type="button" class="danger" onClick=${() => talks.forEach((one) => one.stop())}>Stop</button>`
        : html`<button class="main" disabled=${!text.trim() || !talks[0].model}>Send</button>`}
      ${sees && html`<label class="check">Image<input type="file" accept="image/*" onChange=${(event) => readImage(event.target.files[0], setImage)} /></label>`}
      <span class="small muted">Enter sends, Shift and Enter begins a line.</span>
    </div>
  </form>`;
}

function readImage(file, give) {
  if (!file) return give(null);
  const reader = new FileReader();
  reader.onload = () => give(reader.result);
  return reader.readAsDataURL(file);
}

function Parameters({ settings, setSettings }) {
  const set = (name) => (event) => setSettings({ ...settings, [name]: event.target.value });
  const wrong = faultOf(settings.tools);
  return html`<details class="card">
    <summary>System prompt, sampling, tools</summary>
    <label>System prompt<textarea rows="2" value=${settings.system} onInput=${set("system")}></textarea></label>
    <fieldset>
      <legend class="unseen">Sampling</legend>
      <label>Temperature<input type="number" min="0" max="2" step="0.1" placeholder="the model's" value=${settings.temperature} onInput=${set("temperature")} /></label>
      <label>Tokens at most<input type="number" min="1" placeholder="no limit" value=${settings.max_tokens} onInput=${set("max_tokens")} /></label>
      <label class="check"><input type="checkbox" checked=${Boolean(settings.tools)} onChange=${() => setSettings({ ...settings, tools: settings.tools ? "" : EXAMPLE_TOOLS })} />Offer tools</label>
    </fieldset>
    ${settings.tools && html`<label>Tools, as JSON<textarea class="mono" rows="8" spellcheck="false" aria-invalid=${Boolean(wrong)} value=${settings.tools} onInput=${set("tools")}></textarea></label>`}
    ${wrong && html`<p class="bad" role="alert">${wrong}</p>`}
  </details>`;
}

function faultOf(tools) {
  try {
    if (tools.trim() && !Array.isArray(JSON.parse(tools))) return "The tools have to be a list.";
    return "";
  } catch (error) {
    return `The tools are not valid JSON: ${error.message}`;
  }
}

/** The last request, or the one that would be sent, for other programs. */
function AsCode({ talk, settings }) {
  const asked = talk.messages.filter((_, at) => at <= talk.messages.findLastIndex((one) => one.role !== "assistant"));
  const messages = asked.length ? asked : [{ role: "user", content: "Hello" }];
  if (faultOf(settings.tools)) return null;
  const body = requestOf(talk.model, messages, settings);
  return html`<details class="card">
    <summary>This request as a command or a program</summary>
    <${Code} label="curl" text=${asCurl(body, location.origin, hasKey())} />
    <${Code} label="Python" text=${asPython(body, location.origin, hasKey())} />
  </details>`;
}
