// What the hub says: docs/protocol.md, sections 5.4, 6.2, 7.2 and 7.5. Each message is judged and stored with its effect in one transaction.
import { Dropped, Refused, kidOf, open, timely } from "./wire.mjs";
import { read } from "./bodies.mjs";

const taken = ["agent.spawn", "agent.kill", "agent.pause", "agent.status", "agent.output_stored", "peer.keyset", "peer.received", "peer.revoked"];
const unstored = ["agent.output_stored", "peer.received", "peer.revoked", "peer.heartbeat"];
const grave = ["TIME_TTL", "BODY_DIGEST", "BODY_JSON", "VALIDATION", "REPLAY_DIFF"];

export class Inbox {
  constructor(spoke) { Object.assign(this, { spoke, bad: [] }); }
  get db() { return this.spoke.db; }

  peer() {
    const { id, hub, identity } = this.db.get("connection"), set = this.db.get("keyset");
    const pub = Buffer.from(identity, "base64"), keys = Object.fromEntries(set.keys.map((k) => [kidOf(Buffer.from(k.pub, "base64")), Buffer.from(k.pub, "base64")]));
    return { self: this.spoke.self, hub, conn: id, identity: kidOf(pub), keys: { ...keys, [kidOf(pub)]: pub } };
  }

  // opened reads one message: the message with its body or its refusal; undefined for one that has no effect.
  opened(raw) {
    let m;
    try {
      m = open(raw, this.peer());
      timely(m, Date.now());
      m.parsed = read(m);
      if (!taken.includes(m.header.kind) && m.header.kind !== "peer.heartbeat") throw new Refused("HDR_FIELD", "a hub does not send this");
    } catch (err) {
      if (err instanceof Dropped) return void (["CONN_UNKNOWN", "EPOCH_STALE"].includes(err.code) || this.blame(err.code));
      if (!(err instanceof Refused)) throw err;
      if (err.code === "TIME_FUTURE") return; // it comes again, and is taken when the clock that is wrong was set
      m.refused = err;
    }
    if (m.refused && grave.includes(m.refused.code)) this.blame(m.refused.code);
    return m;
  }

  // blame counts what an honest peer does not send: twenty in a minute suspend the connection.
  blame(code) {
    const now = Date.now();
    this.bad = [...this.bad.filter((at) => at > now - 60e3), now];
    if (this.bad.length >= 20) this.spoke.suspend("self", `20 messages that an honest hub does not send; the last one: ${code}`);
  }

  // ended is the code for a key that does not sign any more.
  ended(kid) {
    const set = this.db.get("keyset");
    if (set.revoked.includes(kid)) return "KEY_REVOKED";
    const key = set.keys.find((k) => kidOf(Buffer.from(k.pub, "base64")) === kid);
    return key?.until && key.until < Date.now() ? "KEY_WINDOW" : "";
  }

  // take judges the messages of one delivery: an envelope, or a pack of them.
  take(bytes) {
    let list = [bytes];
    if (bytes[0] === 0x5b) {
      // A pack is cut at its commas between envelopes, so that each keeps its bytes; B64 has no braces in it.
      const parts = bytes.subarray(1, -1).toString("latin1").split(/(?<=\}),(?=\{"payloadType")/);
      if (bytes.at(-1) === 0x5d && parts.length <= 64) list = parts.map((p) => Buffer.from(p, "latin1"));
    }
    for (const raw of list) {
      const m = this.opened(raw);
      if (m) this.one(m);
    }
  }

  one(m) {
    const h = m.header, code = this.ended(h.kid);
    if (unstored.includes(h.kind)) {
      if (!m.refused && !code && h.wsp === "main") this.spoke.heard(m);
      return;
    }
    const identity = h.kid === this.peer().identity;
    if ((identity && h.kind !== "peer.keyset") || (code && !(identity && h.kind === "peer.keyset"))) return; // KEY_UNKNOWN, KEY_REVOKED, KEY_WINDOW
    if (h.kind === "agent.spawn" && this.spoke.state.state !== "active") return; // CONN_STATE
    const known = this.spoke.ins.get(h.id);
    if (known) return known.seal === m.sealOf ? this.again(known, m) : this.blame("REPLAY_DIFF");
    if (this.spoke.inSeqs.has(h.seq)) return this.spoke.compare(); // SEQ_REUSE
    this.spoke.transact((tx) => {
      const row = { id: h.id, seq: h.seq, digest: m.digest, seal: m.sealOf, exp: h.exp };
      const refused = m.refused ?? (h.wsp !== "main" ? new Refused("GRANT", "the grant of this connection is for the workspace main") : null);
      if (refused) this.refuse(tx, m, refused);
      else this.act(tx, m);
      if (h.kind === "agent.spawn" && !tx.refused) row.spawn = m.raw.toString("base64");
      tx.put("in:" + h.seq, row);
    });
    this.spoke.wake();
  }

  // again answers a repetition. One that was sealed anew takes the place of the earlier seal.
  again(known, m) {
    if (m.header.seq > known.seq) this.spoke.transact((tx) => {
      tx.put("in:" + known.seq, null);
      tx.put("in:" + m.header.seq, { ...known, seq: m.header.seq, digest: m.digest, ...(known.spawn && { spawn: m.raw.toString("base64") }) });
    });
    this.spoke.repeat(m.header.id);
  }

  refuse(tx, m, { code, why }) {
    const task = m.parsed?.task;
    if (["agent.spawn", "agent.kill", "agent.pause", "agent.status"].includes(m.header.kind)) tx.refuse(m, code, why, task);
  }

  act(tx, m) {
    const { agents } = this.spoke;
    switch (m.header.kind) {
      case "agent.spawn": return agents.spawn(tx, m, m.parsed);
      case "agent.kill": return agents.kill(tx, m, m.parsed);
      case "agent.pause": return agents.pause(tx, m, m.parsed);
      case "agent.status": return agents.status(tx, m, m.parsed);
      case "peer.keyset": return this.keySet(tx, m);
    }
  }

  keySet(tx, m) {
    const { version, keys, revoked } = m.parsed, set = this.db.get("keyset"), { identity } = this.peer();
    const kids = keys.map((k) => kidOf(Buffer.from(k.pub, "base64"))), now = Date.now();
    const signed = [...m.kids].some((k) => k !== identity) || revoked.length > 0;
    if (version > set.version && signed && new Set(kids).size === kids.length && !kids.includes(identity) && !keys[0].for_ms) {
      const kept = keys.map((k, i) => {
        const was = set.keys.find((o) => o.pub === k.pub), until = i === 0 ? 0 : now + (k.for_ms || 0);
        return { pub: k.pub, until: was?.until ? Math.min(was.until, until || was.until) : until };
      });
      // Keys that ended are still known: what they signed is told apart from a stranger's.
      const gone = set.keys.filter((o) => !keys.some((k) => k.pub === o.pub)).map((o) => ({ ...o, until: o.until ? Math.min(o.until, now) : now }));
      tx.put("keyset", { version, keys: [...kept, ...gone].slice(-64), revoked: [...new Set([...set.revoked, ...revoked])] });
    }
    tx.then(() => this.spoke.confirm());
  }
}
