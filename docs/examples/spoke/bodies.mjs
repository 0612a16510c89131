// Bodies: docs/protocol.md, sections 6.1 to 6.4, of the kinds that a hub sends to a spoke.
import { Refused, admitted, uuid } from "./wire.mjs";

// parse reads JSON by the rules of section 6.1, which JSON.parse is too kind for.
export function parse(bytes) {
  const bad = (why) => { throw new Refused("BODY_JSON", why); };
  let text, at = 0;
  try { text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes); } catch { bad("invalid UTF-8"); }
  const space = () => { while (" \t\n\r".includes(text[at] ?? "x")) at++; };
  const take = (form) => { form.lastIndex = at; const m = form.exec(text); if (m) at += m[0].length; return m?.[0]; };
  const string = () => {
    const raw = take(/"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y) ?? bad("a string was expected");
    const s = JSON.parse(raw);
    if (!s.isWellFormed() || /[\0\ufffd]/.test(s)) bad("a string has a lone surrogate, NUL or U+FFFD");
    return s;
  };
  const value = (depth) => {
    if (depth > 32) bad("more than 32 levels");
    space();
    const c = text[at];
    if (c === '"') return string();
    if (c === "{" || c === "[") return list(depth, c === "{");
    const word = take(/true|false/y);
    if (word) return word === "true";
    const number = take(/-?(?:0|[1-9][0-9]*)(?![0-9.eE])/y) ?? bad("a value was expected");
    return Number.isSafeInteger(+number) ? +number : bad("a number is too large");
  };
  const list = (depth, object) => {
    const all = [], close = object ? "}" : "]", names = new Set();
    at++;
    space();
    while (text[at] !== close) {
      let name;
      if (object) {
        name = string();
        if (!/^[a-z0-9_]{1,64}$/.test(name) || names.has(name)) bad(`the name ${name.slice(0, 64)} is twice there, or none`);
        names.add(name);
        space();
        if (text[at++] !== ":") bad("a colon was expected");
      }
      const v = value(depth + 1);
      all.push(object ? [name, v] : v);
      space();
      if (text[at] === ",") { at++; space(); if (text[at] === close) bad("a value was expected"); } else if (text[at] !== close) bad("a comma was expected");
    }
    at++;
    return object ? Object.fromEntries(all) : all;
  };
  const v = value(1);
  space();
  if (at < text.length || typeof v !== "object" || Array.isArray(v)) bad("the body is not one object");
  return v;
}

// A field is [type, bound]. The type is checked first, for all fields (BODY_JSON), then the bounds.
const within = (from, to) => (v) => v >= from && v <= to;
const size = (s) => Buffer.byteLength(s);
const text = (limit, from = 0) => ["string", (s) => size(s) >= from && size(s) <= limit];
const id = ["string", (s) => uuid.test(s)], count = ["integer", within(0, Number.MAX_SAFE_INTEGER)], flag = ["boolean"];
const free = (type) => [type];
const list = (item, bound = () => true) => ["list", bound, item];
const object = (fields, bound = () => true) => ["object", bound, fields];
const numbers = { through: count, gaps: list(object({ from: count, to: count })) };
const printable = (s) => size(s) <= 256 && !/\p{Cc}/u.test(s);
// below tells a path to one place below a directory.
const below = (p) => size(p) <= 512 && !/\p{Cc}/u.test(p) && p.split("/").every((name) => name !== "" && name !== "." && name !== ".." && size(name) <= 255);
const code = ["string", (s) => /^([A-Z][A-Z0-9_]{0,63})?$/.test(s)];
const levels = ["", "unmet", "none", "bubble", "landlock", "user", "user+bubble", "user+landlock"];
const history = object({ base: count, from: count, until: free("integer"), sha256: free("string") });
const recalled = object({ from: count, through: count, done: flag, tasks: list(object({ task: id, command: id, sha256: free("string"), attempt: count, state: free("string"),
  reason: free("string"), outcome: free("string"), code: free("integer"), ended: count, comes: flag, over: flag, word: count })), orders: list(free("string")) },
  (r, covered = r.through - r.from + 1) => covered >= (r.done ? 0 : 1) && Math.max(r.tasks.length, r.orders.length) <= Math.min(covered, 128));
const refused = list(object({ seq: count, code }), (l) => l.length <= 64);
const ranges = list(object({ from: count, to: count }), (l) => l.length <= 256 && l.every((r, i) => r.from <= r.to && r.from > (l[i - 1]?.to ?? 0)));
const numbering = object({ sent: count, base: count, stored: object(numbers), digest: history, ask: list(count, (l) => l.length <= 256),
  held: list(object({ seq: count, sha256: free("string") })), void: ranges, refused, controls: count, recall: count, recalled },
  (n) => (n.void.at(-1)?.to ?? 0) <= n.base);
const states = ["pending", "active", "suspended", "disconnected", "rejected", "revoked"];

export const kinds = {
  "agent.spawn": ["command", {
    task: id, title: ["string", printable], runtime: ["string", (r) => r === "exec" || r === "noop"],
    argv: list(["string", (s) => !s.includes("\0")], (l) => l.length <= 4096 && l.reduce((n, s) => n + size(s) + 1, 0) <= 131072),
    dir: ["string", (d) => d === "" || (size(d) <= 4096 && d.startsWith("/") && !/\/\/|\/\.\.?(\/|$)|.\/$/.test(d)), "PATH"],
    env: list(object({ name: ["string", (s) => size(s) <= 128 && /^[^=\0]+$/.test(s), "BAD_ENV"], as: ["string", (s) => ["", "secret", "file"].includes(s), "BAD_ENV"] },
      (e) => e.as !== "file" || /^\w+$/.test(e.name)),
      (l) => l.length <= 256 && new Set(l.map((e) => e.name.toUpperCase())).size === l.length, "BAD_ENV"),
    sealed: object({ key: ["string", (s) => /^x25519:[\w-]{43}$/.test(s)], mark: ["base64", (b) => b.length === 32], box: ["base64", (b) => b.length >= 50] }),
    capabilities: list(["string", (s) => /^[A-Za-z0-9][A-Za-z0-9._:/+-]{0,63}$/.test(s)], (l) => l.length <= 256),
    priority: ["integer", within(-100, 100)], timeout_ms: ["integer", within(0, 2592000000)], estimate_ms: ["integer", within(0, 2592000000)], backoff_ms: ["integer", within(0, 3600000)], max_retries: ["integer", within(0, 100)],
    on_loss: ["string", (s) => ["", "fail", "rerun"].includes(s)],
    trace: ["string", (s) => s === "" || /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/.test(s)],
    retry_of: ["string", (s) => s === "" || /^[0-9a-f-]{36}$/.test(s)],
    files: list(object({ path: ["string", below, "PATH"], exec: flag }), (l) => l.length <= 32), stdin: flag,
  }, (b) => {
    if ((b.env.length + b.files.length > 0 || b.stdin) !== Boolean(b.sealed)) throw new Refused("BAD_ENV", "there are variables or files without values, or values without them");
    const paths = b.files.map((f) => f.path);
    if (new Set(paths).size < paths.length || paths.some((p) => paths.some((other) => other.startsWith(p + "/")))) throw new Refused("PATH", "two files are in the same place");
    if (b.files.length && b.dir || b.runtime === "noop" && (b.files.length || b.stdin)) throw new Refused("VALIDATION", "files are for a fresh directory, and no noop takes them");
    return b.runtime === "exec" ? b.argv.length > 0 && b.argv[0] !== "" : b.argv.length === 0;
  }],
  "agent.kill": ["command", { task: id, reason: text(1024, 1), grace_ms: ["integer", within(0, 600000)], cancel: ["string", (s) => ["", "now", "after"].includes(s)] }],
  "agent.pause": ["command", { task: id, number: ["integer", within(1, Number.MAX_SAFE_INTEGER)], paused: flag, reason: text(1000) }],
  "agent.status": ["command", { task: id }],
  "agent.output_stored": ["peer", { streams: list(object({ task: id, attempt: ["integer", within(1, 1000000)], stream: ["string", (s) => s === "stdout" || s === "stderr"],
    through: count, ended: flag, code }), (l) => l.length >= 1 && l.length <= 256) }],
  "peer.keyset": ["keyset", { version: ["integer", within(1, Number.MAX_SAFE_INTEGER)],
    keys: list(object({ pub: ["base64", admitted, "KEY_WEAK"], for_ms: ["integer", within(0, 7776000000)] }), (l) => l.length >= 1 && l.length <= 8),
    revoked: list(free("string"), (l) => l.length <= 64), reason: text(1000) }],
  "peer.received": ["peer", { ...numbers, refused, beat: flag }],
  "peer.revoked": ["peer", { reason: text(1000) }],
  "peer.heartbeat": ["peer", { interval_ms: ["integer", within(100, 3600000)], incarnation: ["string", (s) => s === "" || uuid.test(s)],
    connection: object({ state: ["string", (s) => states.includes(s)], reason: text(1000), by: text(256), agrees: flag, differs: text(1000), numbers: numbering,
      refuses: object({ kid: free("string"), code: free("string") }), limited: flag, full: flag,
      freeze: object({ number: ["integer", within(1, Number.MAX_SAFE_INTEGER)], frozen: flag, reason: text(1000), by: text(256), since: count }), heeds: count }),
    slots: count, running: count, queued: count, capabilities: list(free("string")), kill_level: free("string"), isolation: ["string", (s) => levels.includes(s)], stopping: flag, starts_none: text(1000), lease_ms: count,
    declines: list(object({ code: ["string", (s) => /^[a-z][a-z0-9_]{0,63}$/.test(s)], what: ["string", (s) => /^([a-z][a-z0-9_.]{0,63})?$/.test(s)], since: count }), (l) => l.length <= 16),
    version: free("string"), policy: free("string"), agents: list(object({ task: id, attempt: count, state: free("string"), rss: count, cpu_ms: count, sign: free("string"), idle_ms: count, slept_ms: count, overrun: flag, progress: object({ current: count, total: count, unit: free("string"), step: free("string"), at: count }) }),
      (l) => l.length <= 400 && new Set(l.map((a) => a.task)).size === l.length && l.filter((a) => a.progress).length <= 100) }],
};

const empty = { string: "", integer: 0, boolean: false, list: [], object: undefined, base64: "" };
const fits = { string: (v) => typeof v === "string", integer: Number.isSafeInteger, boolean: (v) => typeof v === "boolean", list: Array.isArray,
  object: (v) => typeof v === "object" && !Array.isArray(v), base64: (v) => typeof v === "string" && Buffer.from(v, "base64").toString("base64") === v };

// typed fills in what is not there and refuses other types, and where nothing but what is known may be there unknown names.
function typed([type, , inner], v, strict) {
  if (!fits[type](v)) throw new Refused("BODY_JSON", `a value that is not ${type}`);
  if (type === "list") return v.map((x) => typed(inner, x, strict));
  return type === "object" ? typedFields(inner, v, strict) : v;
}
function typedFields(fields, v, strict) {
  const stray = strict && Object.keys(v).find((name) => !fields[name]);
  if (stray) throw new Refused("BODY_JSON", `there is no field ${stray}`);
  return Object.fromEntries(Object.entries(fields).map(([name, f]) => [name, name in v ? typed(f, v[name], strict) : empty[f[0]]]));
}
function bounded(name, [type, bound, inner], v) {
  const refuse = (why, c = "VALIDATION") => { throw new Refused(c, `field ${name} ${why}`); };
  if (v === undefined) return;
  if (type === "list") v.forEach((x) => bounded(name, inner, x));
  if (type === "object") for (const [n, f] of Object.entries(inner)) bounded(n, f, v[n]);
  const own = { env: "BAD_ENV", dir: "PATH", path: "PATH", name: "BAD_ENV", as: "BAD_ENV", sealed: "BAD_ENV", key: "BAD_ENV", mark: "BAD_ENV", box: "BAD_ENV", pub: "KEY_WEAK" }[name];
  if (bound && !bound(type === "base64" ? Buffer.from(v, "base64") : v)) refuse("is out of its bounds", own);
}

// read makes the checks of step 8.
export function read(m) {
  const { kind, body } = m.header, [type, fields, whole] = kinds[kind] ?? [];
  if (type !== m.type || body.type !== kind + ".v1") throw new Refused("HDR_FIELD", "there is no such kind under this type");
  const b = typedFields(fields, parse(m.body), type === "command" || type === "keyset");
  for (const [name, f] of Object.entries(fields)) bounded(name, f, b[name]);
  if (whole && !whole(b)) throw new Refused("VALIDATION", "argv does not fit the runtime");
  return b;
}
