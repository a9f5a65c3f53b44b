// Numbers and times as people read them. Pure.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** `1536` → `1.5 KiB`; what is unknown is a dash. */
export function bytes(count) {
  if (count === null || count === undefined) return "–";
  let size = Math.abs(count);
  let unit = 0;
  while (size >= 1023.5 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 ? 0 : 1;
  return `${count < 0 ? "−" : ""}${size.toFixed(digits)} ${UNITS[unit]}`;
}

/** `32768` → `32,768`. */
export function count(number) {
  return number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en");
}

/** `131072` → `128 k`, `4096` → `4 k`, `1000` → `1,000`: tokens of a context. */
export function tokens(number) {
  if (number === null || number === undefined) return "–";
  return number >= 1024 && number % 1024 === 0 ? `${(number / 1024).toLocaleString("en")} k` : count(number);
}

/** Seconds → `12 ms`, `0.42 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `4 d 2 h`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.max(0, seconds);
  if (whole < 0.0995) return whole < 0.0005 ? "0 s" : `${Math.round(whole * 1000)} ms`;
  if (whole < 10) return `${whole.toFixed(whole < 1 ? 2 : 1)} s`;
  if (whole < 60) return `${Math.round(whole)} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${Math.floor(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** Tokens per second. */
export function speed(perSecond) {
  if (perSecond === null || perSecond === undefined || !Number.isFinite(perSecond)) return "–";
  return `${perSecond < 100 ? perSecond.toFixed(1) : count(perSecond)} t/s`;
}

/** A share from 0 to 1 as a percentage. */
export function percent(share) {
  return share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`;
}

/** Seconds since 1970 → the local time of day, with the date where it is another day. */
export function clock(epoch) {
  if (epoch === null || epoch === undefined) return "–";
  const when = new Date(epoch * 1000);
  const time = when.toLocaleTimeString(undefined, { hour12: false });
  return when.toDateString() === new Date().toDateString() ? time : `${when.toLocaleDateString()} ${time}`;
}

/** One word for one, another for any other number. */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
