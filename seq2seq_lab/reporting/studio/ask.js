/* Questions to the server, or to the answers that a page without a server has. */
const page = crypto.getRandomValues(new Uint32Array(3)).join("-").slice(0, 40);
const answers = new Map(), sizes = new Map(), MOST = 5e7; // letters of the answers that are kept
const newest = new Map(); // bodies by name
let saved = null; // of a page without a server: runs, sentences, answers

export class Refused extends Error {}

/* The answers in the page, as JSON that is compressed and in base64; null if the page has a server. */
export async function readSaved() {
  const source = at("saved-answers");
  if (!source) return null;
  const bytes = Uint8Array.from(atob(source.textContent.trim()), (letter) => letter.charCodeAt(0));
  saved = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  for (const { name, body, answer } of saved.answers) answers.set(keyOf(name, body), answer);
  return saved;
}

export function keyOf(name, body) {
  const given = Object.entries(body).filter(([, value]) => value !== null && value !== undefined && value.length !== 0);
  return name + JSON.stringify(given.sort());
}

export function hasAnswer(name, body) { return answers.has(keyOf(name, body)); }

async function send(name, body) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ page, ...body }) };
  let reply;
  try {
    reply = await fetch(`api/${name}`, options);
  } catch {
    noAnswer();
    throw new Refused("");
  }
  if (reply.status === 204 && newest.get(name) === body) return send(name, body); // an older one came later
  if (reply.status !== 200) throw new Refused(await reply.text());
  return reply;
}

/* The answer to a question; none if a newer one with the same name replaces it. */
export async function ask(name, body) {
  const key = keyOf(name, body);
  newest.set(name, body);
  if (answers.has(key)) return answers.get(key);
  if (saved) throw new Refused("This page has no server. It shows only what was saved in it.");
  try {
    const text = await (await send(name, body)).text();
    let all = [...sizes.values()].reduce((sum, one) => sum + one, text.length);
    for (const [old, size] of sizes) if (all > MOST) {
      all -= size;
      sizes.delete(old);
      answers.delete(old);
    }
    sizes.set(key, text.length);
    answers.set(key, JSON.parse(text));
  } catch (error) {
    if (newest.get(name) === body) throw error;
  }
  return newest.get(name) === body ? answers.get(key) : new Promise(() => {});
}

export async function askPage(name, body) { return (await send(name, body)).blob(); }

function noAnswer(restarted = false) {
  at("down").hidden = false;
  at("down").textContent = restarted ? "The studio was started again. Open the address in its terminal; this page then works again."
    : "The studio does not answer. Start it again with the same --port, and open the address in its terminal.";
}

/* Show whether the server is there, every second while the page is visible. */
export async function watch() {
  while (!saved) {
    await new Promise((done) => setTimeout(done, 1000));
    if (document.hidden) continue;
    try {
      const reply = await fetch("alive", { signal: AbortSignal.timeout(2000) });
      reply.ok ? at("down").hidden = true : noAnswer(reply.status === 403); // a proxy answers 5xx
    } catch {
      noAnswer();
    }
  }
}
