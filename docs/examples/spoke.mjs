// A minimal spoke, written from docs/protocol.md. It joins with the token in SPAWNMESH_TOKEN, keeps its keys and state in the directory
// SPAWNMESH_STATE, and runs what its hub orders: every command, so let it join no hub that you do not trust with this account.
//   node spoke.mjs            join if it has not yet, and run
//   node spoke.mjs resume     take up a connection that it suspended by itself, the next time that it runs
import { generateKeyPairSync, randomBytes, randomUUID } from "node:crypto";
import { existsSync, statSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { headers as natsHeaders } from "@nats-io/nats-core";
import { Agents, capabilities } from "./spoke/agents.mjs";
import { digestIn, digestOf, has, merged, numbersOf, recalledOf } from "./spoke/histories.mjs";
import { Inbox } from "./spoke/inbox.mjs";
import { Journal } from "./spoke/journal.mjs";
import { join, readToken } from "./spoke/join.mjs";
import { dial, nkeyLogin } from "./spoke/link.mjs";
import { instanceOf, seal, signer } from "./spoke/wire.mjs";

const interval = 1000, hour = 3600e3, day = 24 * hour, lease = day;
const queueOf = { "agent.result": "res", "agent.log": "log" };
const typeOf = { "agent.result": "result", "agent.log": "event", "peer.received": "peer", "peer.heartbeat": "peer" };
const say = (...words) => console.error(new Date().toISOString(), ...words);

class Spoke {
  constructor(dir) {
    this.db = new Journal(dir + "/journal");
    this.incarnation = randomUUID();
    this.inbox = new Inbox(this);
    this.agents = new Agents(this, dir + "/agents", 4);
    this.sent = new Map(); // number -> when it was published last, on this message server
    this.beatNow = () => {};
    this.lastHeard = Date.now();
  }
  get state() { return this.db.get("state") ?? { state: "active" }; }
  get connection() { return this.db.get("connection"); }
  get over() { return this.state.state === "revoked"; }
  mayStart() { return this.state.state === "active" && Date.now() - this.lastHeard < lease; }

  // open makes what must be there once: keys and a connection.
  async open(token) {
    if (!this.db.get("keys")) {
      const seed = () => randomBytes(32).toString("base64"), x = generateKeyPairSync("x25519");
      const raw = (key, type) => key.export({ format: "der", type }).subarray(-32).toString("base64");
      this.db.commit([["keys", { identity: seed(), signing: seed(), link: seed(), sealing: raw(x.publicKey, "spki"), unsealing: raw(x.privateKey, "pkcs8") }]]);
    }
    this.keys = this.db.get("keys");
    this.self = instanceOf(signer(this.keys.identity).pub);
    this.signer = signer(this.keys.signing);
    if (!this.connection) {
      const c = await join(readToken(token ?? ""), this.keys);
      this.db.commit([["connection", c], ["keyset", { version: 1, keys: [{ pub: c.signing, until: 0 }], revoked: [] }], ["last", 0]]);
      say(`joined hub ${c.hubName} as ${c.name}`);
    }
    this.prune();
    this.ins = new Map([...this.db.all("in:")].map((m) => [m.id, m]));
    this.inSeqs = new Set([...this.db.all("in:")].map((m) => m.seq));
    this.agents.recover();
  }

  // prune forgets what nobody can ask for any more.
  prune() {
    const now = Date.now(), old = [];
    for (const [key, v] of this.db.map) {
      const exp = key.startsWith("in:") ? v.exp + hour + 240e3 : key.startsWith("out:") ? v.exp : key.startsWith("tombstone:") ? v : key.startsWith("task:") && v.result ? v.order.exp + 30 * day : Infinity;
      if (exp < now && !(key.startsWith("out:") && !v.confirmed)) old.push([key, null]);
    }
    if (old.length) {
      // Numbers stay used: a message under one of them is none that is new.
      const gone = new Set(old.filter(([k]) => k.startsWith("in:")).map(([k]) => +k.slice(3)));
      if (gone.size) old.push(["spent", numbersOf([...this.spent(), ...gone])]);
      this.db.commit(old);
    }
  }
  *spent() { const s = this.db.get("spent"); for (let n = 1; s && n <= s.through; n++) if (has(s, n)) yield n; }
  // Numbers that no message has any more count as stored; a message that comes under one is new all the same.
  stored() { return numbersOf(new Set([...this.spent(), ...[...this.db.all("in:")].map((m) => m.seq)]), this.db.get("void")); }

  // transact collects changes and messages, and commits them together. What goes on behind it comes after.
  transact(act) {
    const changes = [], after = [];
    let last = this.db.get("last");
    const tx = {
      put: (key, value) => changes.push([key, value]),
      then: (fn) => after.push(fn),
      send: (kind, body, re) => {
        const m = this.seal(kind, body, ++last, re);
        changes.push(["last", last], ["out:" + last, { seq: last, id: m.header.id, re: re?.id, kind, digest: m.digest, exp: m.header.exp, envelope: m.envelope.toString("latin1") }]);
      },
      answer: (m, kind, body) => tx.send(kind, body, { id: m.header.id, sha256: m.header.body.sha256, attempt: 0, fence: 0 }),
      refuse: (m, code, why, task) => { tx.refused = true; tx.answer(m, "agent.refused", { ...(task && { task }), code, why: why.slice(0, 1000) }); },
    };
    act(tx);
    this.db.commit(changes);
    for (const [key, v] of changes) if (key.startsWith("in:")) {
      if (v) { this.ins.set(v.id, v); this.inSeqs.add(v.seq); }
    }
    after.forEach((fn) => fn());
    this.publish?.();
  }

  seal(kind, body, seq, re) {
    const c = this.connection, now = Date.now(), bytes = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
    return seal(this.signer, typeOf[kind] ?? "receipt", { kind, iss: this.self, aud: c.hub, conn: c.id, seq: seq ?? now, iat: now, exp: now + 30 * day - 1, re }, bytes);
  }

  // A change of the connection's state is lasting, and told at once.
  set(state) { this.db.commit([["state", state]]); say("connection:", state.state, state.reason ?? ""); this.beatNow(); }
  suspend(by, reason) { if (this.state.state === "active") this.set({ state: "suspended", by, reason }); }
  revoke(reason) {
    this.set({ state: "revoked", by: "peer", reason });
    for (const child of this.agents.live.values()) try { process.kill(-child.pid, "SIGKILL"); } catch { /* it has ended */ }
    say("the hub has ended the connection; nothing more will run here. To join anew, use another token and an empty directory.");
    process.exit(0);
  }

  // heard takes messages of kinds that are not stored.
  heard(m) {
    const b = m.parsed;
    if (m.header.kind === "peer.revoked") this.revoke(b.reason);
    if (m.header.kind === "peer.received" && this.agrees && m.header.iat >= this.agreedAt) this.confirmed(b);
    if (m.header.kind === "peer.received" && b.beat) this.beatNow();
    if (m.header.kind === "peer.received") for (const r of b.refused) this.refusedByHub(r);
    if (m.header.kind === "agent.output_stored") b.streams.forEach((s) => this.outputStored(s, m));
  }
  wake() { setImmediate(() => this.over || this.agents.work()); }

  // confirmed closes the messages of a set of numbers; with `only`, it opens the others again: the hub has lost them.
  confirmed(set, only) {
    const changes = [];
    for (const m of this.db.all("out:")) {
      const c = has(set, m.seq) || (!only && m.confirmed);
      if (!!m.confirmed !== !!c && (c || m.exp > Date.now())) changes.push(["out:" + m.seq, { ...m, confirmed: c }]);
      if (!c && m.confirmed) this.sent.delete(m.seq);
    }
    if (changes.length) this.db.commit(changes);
  }
  // refusedByHub says once of a report that the hub has stored it and that it had no effect.
  refusedByHub({ seq, code }) {
    if (this.told?.has(seq) || !this.db.get("out:" + seq)) return;
    (this.told ??= new Set()).add(seq);
    say(`the hub has refused report ${seq}:`, code);
  }
  confirm() { this.sendPeer?.("peer.received", this.stored()); }
  // repeat sends the stored answers to a command again, as they were.
  repeat(id) {
    for (const m of this.db.all("out:")) if (m.re === id) this.sent.delete(m.seq);
    this.once = new Set([...(this.once ?? []), ...[...this.db.all("out:")].filter((m) => m.re === id).map((m) => m.seq)]);
    this.publish?.();
  }
  compare() { this.agrees = false; this.beatNow(); }

  // view is what a heartbeat says of the connection (section 7.6).
  view() {
    const ins = [...this.db.all("in:")], base = this.db.get("base") ?? 0, stored = this.stored(), { state, by, reason } = this.state;
    const numbers = { sent: this.db.get("last"), stored };
    if (!this.agrees || !this.hubAgrees) numbers.digest = digestOf(ins, base, stored.through, Date.now());
    if (this.asked?.length) {
      const there = new Map(ins.map((m) => [m.seq, m.digest])), gone = this.db.get("void") ?? [];
      numbers.held = this.asked.map((seq) => ({ seq, sha256: there.get(seq) ?? (gone.some((r) => r.from <= seq && seq <= r.to) ? "0".repeat(64) : "") })).filter((h) => h.sha256);
    }
    if (this.recall && this.drained) numbers.recalled = recalledOf(ins, this.recall);
    return { state, ...(by && { by }), ...(reason && { reason }), agrees: !!this.agrees, ...(this.differs && { differs: this.differs }), numbers };
  }

  // follow compares the hub's numbers with what is here, and decides whether this side agrees.
  follow(h, iat) {
    this.lastHeard = Date.now();
    const { connection: c } = h, n = c.numbers;
    if (c.state === "suspended" && c.by === "clone") this.suspend("clone", "two instances have one key");
    this.hubAgrees = c.agrees;
    if (!n) return;
    if (n.base > (this.db.get("base") ?? 0)) this.db.commit([["base", n.base]]);
    if (n.void.length && n.void.at(-1).to <= this.db.get("base")) this.db.commit([["void", merged([...(this.db.get("void") ?? []), ...n.void])]]);
    for (const r of n.refused) this.refusedByHub(r);
    this.asked = n.ask;
    this.recall = n.recall;
    const last = this.db.get("last"), mine = [...this.db.all("out:")];
    const ours = n.digest && digestIn(mine.filter((m) => has(n.stored, m.seq)), n.digest, n.stored.through);
    this.differs = "";
    if (n.stored.through > last) this.differs = `the hub has stored number ${n.stored.through}; the last one here is ${last}`;
    else if (ours && ours.sha256 !== n.digest.sha256) this.differs = "the hub has stored other messages under these numbers";
    if (this.differs) say("the state of this spoke was put back, and it stops sending:", this.differs);
    const waits = this.differs || (n.stored.through > 0 && !n.digest && !this.agrees) || n.sent < this.stored().through || n.ask.length || n.recall;
    if (waits) this.agrees = false;
    else if (!this.agrees) {
      this.confirmed(n.stored, true);
      Object.assign(this, { agrees: true, agreedAt: iat });
      this.beatSoon = true;
      this.publish?.();
    } else this.confirmed(n.stored);
  }

  // outputStored moves the cursor of a stream (section 8).
  outputStored(s, m) {
    const t = this.agents.task(s.task), a = t?.attempts[s.attempt], path = this.agents.path(s.task, s.attempt, s.stream);
    if (!a || !existsSync(path)) return void (s.ended || s.code || this.piece(s, s.through, Buffer.alloc(0), { cut: true }, { id: m.header.id, sha256: m.header.body.sha256, attempt: 0, fence: 0 }));
    if (s.through > statSync(path).size) return;
    const streams = { ...a.streams, [s.stream]: { through: s.through, ended: s.ended || s.code === "UNKNOWN_TASK" } };
    this.db.commit([["task:" + t.task, { ...t, attempts: { ...t.attempts, [s.attempt]: { ...a, streams } } }]]);
    this.waiting?.delete(path);
    this.output();
  }
  piece({ task, attempt, stream }, offset, data, end, re) {
    const head = Buffer.from(JSON.stringify({ task, attempt, stream, offset, ...(end && { end }) }) + "\n");
    this.sendPeer?.("agent.log", Buffer.concat([head, data]), re);
  }
  // output sends one piece of each stream that has more than its cursor says; the answer brings the next one.
  output() {
    if (!this.agrees) return;
    for (const t of this.db.all("task:")) for (const [n, a] of Object.entries(t.attempts)) for (const stream of ["stdout", "stderr"]) {
      const path = this.agents.path(t.task, n, stream), { through = 0, ended } = a.streams[stream] ?? {};
      if (ended || !(a.pid || through) || !existsSync(path) || Date.now() - (this.waiting?.get(path) ?? 0) < 10e3) continue;
      const size = statSync(path).size, length = Math.min(65536, size - through), end = a.ended && through + length === size;
      if (size === 0 || (length === 0 && !end)) continue;
      this.waiting?.set(path, Date.now());
      this.piece({ task: t.task, attempt: +n, stream }, through, this.agents.piece(path, through, length), end ? {} : undefined, this.agents.re(t, +n));
    }
  }

  // run keeps a link for as long as there is a connection.
  async run() {
    for (let wait = 50, ask = 1000, asked = 0; !this.over; wait = Math.min(2 * wait, 3000)) {
      try {
        const { id, address, pin } = this.connection;
        const nc = await dial({ address, pin, name: this.incarnation, inbox: "_INBOX_" + id, login: nkeyLogin(this.keys.link) });
        [wait, ask] = [50, 1000];
        await this.link(nc, id);
      } catch (err) {
        if (/authorization/i.test(String(err)) && Date.now() - asked > ask) {
          [asked, ask] = [Date.now(), Math.min(2 * ask, 30e3)];
          await this.ask().catch(() => {});
        }
      }
      await sleep(wait);
    }
  }

  // ask learns what has become of a connection whose link is refused (section 4.5).
  async ask() {
    const { id, address, pin } = this.connection, user = "ask_" + id;
    const nc = await dial({ address, pin, inbox: "_INBOX_" + user, login: nkeyLogin(this.keys.link, user) });
    try {
      const m = this.inbox.opened(Buffer.from((await nc.request("mesh.ask." + id, "", { timeout: 5000 })).data));
      if (m && !m.refused && m.header.kind === "peer.revoked") this.revoke(m.parsed.reason);
      if (m && !m.refused && m.header.kind === "peer.heartbeat") this.follow(m.parsed, m.header.iat);
    } finally { await nc.close(); }
  }

  // link does everything that is done over one link, until it ends.
  async link(nc, id) {
    if (nc.info.server_id !== this.server) this.sent.clear(); // the queues of the last one are gone
    Object.assign(this, { server: nc.info.server_id, agrees: false, hubAgrees: false, waiting: new Map() });
    const report = (queue, data, msgId) => {
      const h = natsHeaders();
      h.set("Nats-Msg-Id", msgId);
      return nc.request(`mesh.rpt.${id}.${queue}`, data, { timeout: 5000, headers: h }).then((m) => !m.json().error);
    };
    this.sendPeer = (kind, body, re) => {
      const m = this.seal(kind, body, undefined, re);
      report(queueOf[kind] ?? "evt", m.envelope, m.header.id).catch(() => {});
    };
    let publishing = Promise.resolve();
    this.publish = () => { publishing = publishing.then(() => this.relay(nc, report)).catch(() => {}); };
    const end = nc.closed().then(() => { this.agrees = false; this.publish = this.sendPeer = undefined; this.beatNow = () => {}; });
    const timer = setInterval(() => { this.agents.work(); this.output(); this.again(); }, 200);
    const loops = [this.beats(nc, id), this.pull(nc, id, "ctl"), this.pull(nc, id, "run")];
    await end;
    clearInterval(timer);
    await Promise.allSettled(loops);
  }

  // relay publishes what is not confirmed, in the order of the numbers; nothing overtakes one that could not be sent.
  async relay(nc, report) {
    const open = [...this.db.all("out:")].filter((m) => !this.sent.has(m.seq) && (!m.confirmed || this.once?.has(m.seq))).sort((a, b) => a.seq - b.seq);
    for (const m of open) {
      if (!this.agrees || nc.isClosed()) return;
      const again = this.once?.delete(m.seq) || m.tried === this.server ? `.again${Date.now()}` : "";
      if (!(await report(queueOf[m.kind] ?? "evt", Buffer.from(m.envelope, "latin1"), m.id + again))) return;
      m.tried = this.server;
      this.sent.set(m.seq, Date.now());
    }
  }
  // again sends what was not confirmed for 30 s once more, and then less and less often while the oldest stays the same.
  again() {
    const oldest = [...this.db.all("out:")].filter((m) => !m.confirmed).reduce((a, m) => Math.min(a, m.seq), Infinity);
    if (oldest !== this.oldest) Object.assign(this, { oldest, patience: 30e3 });
    if (Date.now() - (this.sent.get(oldest) ?? Infinity) > this.patience) {
      this.patience = Math.min(2 * this.patience, 300e3);
      for (const m of this.db.all("out:")) if (!m.confirmed) this.sent.delete(m.seq);
    }
    if (this.agrees) this.publish?.();
  }

  async beats(nc, id) {
    for (let quick = 100; !nc.isClosed(); ) {
      if (this.recall) this.drained = await this.waitsNothing(nc, id).catch(() => false);
      const running = this.agents.live.size, queued = this.agents.open().length - running;
      const beat = this.seal("peer.heartbeat", { interval_ms: interval, incarnation: this.incarnation, connection: this.view(), slots: this.agents.slots, running,
        queued: Math.max(0, queued), capabilities, kill_level: "tree", isolation: "none", version: "spoke.mjs" });
      const answer = await nc.request("mesh.hb." + id, beat.envelope, { timeout: 5000 }).catch(() => null);
      const m = answer && this.inbox.opened(Buffer.from(answer.data));
      if (m && !m.refused && m.header.kind === "peer.heartbeat" && !this.inbox.ended(m.header.kid)) this.follow(m.parsed, m.header.iat);
      const settled = this.agrees && this.hubAgrees && !this.beatSoon;
      quick = settled ? 100 : Math.min(2 * quick, 5000);
      if (this.beatSoon) [this.beatSoon, quick] = [false, 100];
      await Promise.race([sleep(settled ? interval : Math.min(quick, interval)), nc.closed(), new Promise((r) => { this.beatNow = r; })]);
    }
  }
  async waitsNothing(nc, id) {
    const info = await Promise.all(["run", "ctl"].map((q) => nc.request(`HUB.API.CONSUMER.INFO.COMMANDS.${id}_${q}`, "", { timeout: 5000 })));
    return info.every((m) => m.json().num_pending === 0 && m.json().num_ack_pending === 0);
  }

  // pull takes one message at a time: it is stored, and synced, before it is acknowledged.
  async pull(nc, id, queue) {
    const inbox = `_INBOX_${id}.pull-${queue}`, sub = nc.subscribe(inbox)[Symbol.asyncIterator]();
    while (!nc.isClosed()) {
      if (queue === "run" && this.state.state !== "active") { await sleep(200); continue; }
      nc.publish(`HUB.API.CONSUMER.MSG.NEXT.COMMANDS.${id}_${queue}`, JSON.stringify({ batch: 1, expires: 30e9 }), { reply: inbox });
      const { value: m } = await sub.next();
      if (!m) return;
      if (m.headers?.code) { if (m.headers.code === 503) await sleep(200); continue; }
      this.inbox.take(Buffer.from(m.data));
      nc.publish(m.reply, "+ACK");
    }
  }
}

const dir = process.env.SPAWNMESH_STATE ?? "./state", spoke = new Spoke(dir);
if (process.argv[2] === "resume") {
  if (spoke.state.state === "suspended") spoke.set({ state: "active" });
  process.exit(0);
}
for (const name of ["SIGINT", "SIGTERM"]) process.on(name, () => process.exit(0)); // the state is on disk at every moment
await spoke.open(process.env.SPAWNMESH_TOKEN);
await spoke.run();
process.exit(0);
