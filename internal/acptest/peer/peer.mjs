// A coding agent for tests, made with the SDK that the Agent Client Protocol publishes. It runs the JavaScript that its prompt has between ```js and ```,
// and checks all that its client says: what the schema of the SDK does not know, or reads as another value, is a break of the protocol.
import { appendFileSync, readFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { isDeepStrictEqual, parseArgs } from "node:util";
import * as acp from "@agentclientprotocol/sdk";

const at = (path) => new URL(`./node_modules/@agentclientprotocol/sdk/${path}`, import.meta.url);
const read = await import(at("dist/v1/schema/zod.gen.js"));
const schema = JSON.parse(readFileSync(at("schema/v1/schema.json")));
const { values: is } = parseArgs({ options: {
  state: { type: "string" }, // note in this file what is heard
  auth: { type: "boolean" }, load: { type: "boolean" }, resume: { type: "boolean" },
  "cut-at": { type: "string", default: "" }, // METHOD,...: end the shim while this is under way, the next time at the next one
  "die-at": { type: "string", default: "" },
} });
appendFileSync(is.state, "");
const note = (text) => appendFileSync(is.state, text + "\n");
const forever = () => new Promise(() => {});

// parsers are those of the messages of one kind (Request, Response, Notification), by method.
const parsers = (kind) => Object.fromEntries(Object.entries(schema.$defs).filter(([name, d]) => d["x-method"] && name.endsWith(kind)).map(([name, d]) => [d["x-method"], read["z" + name]]));
const requests = { ...parsers("Request"), ...parsers("Notification") }, responses = parsers("Response"), asked = new Map();

// lost is where a value is not what it was before it was read.
function lost(was, is, path) {
  if (was === null && is === undefined) return "";
  if (typeof was !== "object" || was === null || typeof is !== "object" || is === null) return isDeepStrictEqual(was, is) ? "" : path;
  for (const key of Object.keys(was)) {
    const found = lost(was[key], is[key], `${path}.${key}`);
    if (found) return found;
  }
  return "";
}

function check(m) {
  const method = m.method ?? asked.get(m.id);
  if (m.method === undefined && m.error !== undefined) return;
  const parser = (m.method ? requests : responses)[method], value = m.method ? m.params : m.result;
  const got = parser?.safeParse(value);
  const wrong = !parser ? "there is no such method" : got.success ? lost(value, got.data, "$") : JSON.stringify(got.error.issues);
  if (wrong) note(`BROKEN ${method}: ${wrong} in ${JSON.stringify(m)}`);
}

// cut ends the shim of this attempt, as a crash of it would.
function cut(method) {
  const cuts = readFileSync(is.state, "utf8").match(/^CUT /gm)?.length ?? 0;
  if (method !== is["cut-at"].split(",")[cuts]) return false;
  note("CUT " + method);
  for (let pid = process.ppid; pid > 1; pid = Number(readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").pop().split(" ")[1])) {
    if (readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("\0_shim\0")) process.kill(pid, "SIGKILL");
  }
  return true;
}

// heard is what comes before each request of the client is answered.
async function heard({ method, params }) {
  note(method + " " + JSON.stringify(params));
  if (cut(method)) await forever();
  if (method === is["die-at"]) {
    console.error("the agent has a defect");
    process.exit(3);
  }
}

let session, taken = false;
const cancelled = Promise.withResolvers?.() ?? (() => { const p = {}; p.promise = new Promise((resolve) => (p.resolve = resolve)); return p; })();
const loggedIn = () => { if (is.auth) throw acp.RequestError.authRequired(undefined, "please log in"); };

// tools are what the JavaScript of a prompt is given.
const tools = (client) => {
  const update = (u) => client.notify("session/update", { sessionId: session, update: u });
  const say = (text, more) => update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text }, ...more });
  // ask calls the client, says what it has answered, and returns that; undefined where it was an error.
  const ask = async (method, params) => {
    const answer = client.request(method, { sessionId: session, ...params });
    if (cut(method)) await forever();
    try {
      const result = await answer;
      await say(`${method}: ${JSON.stringify(result)}\n`);
      return result;
    } catch (e) {
      await say(`${method}: error ${e.code} ${e.message}\n`);
    }
  };
  const may = (kind, title, options) => ask("session/request_permission", { toolCall: { toolCallId: "c-" + title, kind, title, rawInput: { of: title } },
    options: options.map((kind) => ({ kind, optionId: "o-" + kind, name: kind.replace("_", " ") })) });
  return { client, update, say, ask, may, note, taken, forever, cancelled: cancelled.promise };
};

const app = acp.agent({ name: "peer" })
  .onRequest("initialize", async (c) => {
    await heard(c);
    return { protocolVersion: acp.PROTOCOL_VERSION, agentInfo: { name: "peer", title: "The peer", version: "7" }, authMethods: [{ id: "login", name: "Log in", description: "in a terminal: peer login" }],
      agentCapabilities: { loadSession: !!is.load, promptCapabilities: { embeddedContext: true }, sessionCapabilities: is.resume ? { resume: {} } : {} } };
  })
  .onRequest("session/new", async (c) => {
    await heard(c);
    loggedIn();
    session = "s-" + process.pid;
    return { sessionId: session };
  })
  .onRequest("session/load", async (c) => {
    await heard(c);
    [session, taken] = [c.params.sessionId, true];
    await tools(c.client).say("said before\n");
    return {};
  })
  .onRequest("session/resume", async (c) => {
    await heard(c);
    [session, taken] = [c.params.sessionId, true];
    return {};
  })
  .onRequest("session/prompt", async (c) => {
    await heard(c);
    const script = /```js\n([^]*?)```/.exec(c.params.prompt[0].text)[1], given = { ...tools(c.client), prompt: c.params.prompt };
    const stop = await new (async () => {}).constructor(...Object.keys(given), script)(...Object.values(given));
    return { stopReason: stop ?? "end_turn" };
  })
  .onNotification("session/cancel", (c) => {
    note("session/cancel " + JSON.stringify(c.params));
    cancelled.resolve();
  });

const wire = acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin));
const out = new TransformStream({ transform: (m, next) => { if (m.method && m.id !== undefined) asked.set(m.id, m.method); next.enqueue(m); } });
const into = new TransformStream({ transform: (m, next) => { check(m); next.enqueue(m); } });
out.readable.pipeTo(wire.writable);
await app.connect({ readable: wire.readable.pipeThrough(into), writable: out.writable }).closed;
note("closed");
process.exit(0);
