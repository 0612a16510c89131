// Envelopes: docs/protocol.md, section 5. Bytes in, a checked message out, and the other way round.
import { createHash, createPrivateKey, createPublicKey, randomUUID, sign as edSign, verify as edVerify } from "node:crypto";

export const sha256 = (...parts) => parts.reduce((h, p) => h.update(p), createHash("sha256")).digest();
export const hex = (...parts) => sha256(...parts).toString("hex");
const b64 = (bytes) => Buffer.from(bytes).toString("base64");
const base32 = (bytes, alphabet) => {
  const bits = [...bytes].map((b) => b.toString(2).padStart(8, "0")).join("");
  return bits.match(/.{1,5}/g).map((five) => alphabet[parseInt(five.padEnd(5, "0"), 2)]).join("");
};
export const upper32 = (bytes) => base32(bytes, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567");
const lower32 = (bytes) => base32(bytes, "abcdefghijklmnopqrstuvwxyz234567");

// Keys (section 2). A private key is kept as its 32-byte seed in base64.
const pkcs8 = Buffer.from("302e020100300506032b657004220420", "hex");
const spki = Buffer.from("302a300506032b6570032100", "hex");
export function signer(seed) {
  const key = createPrivateKey({ key: Buffer.concat([pkcs8, Buffer.from(seed, "base64")]), format: "der", type: "pkcs8" });
  const pub = createPublicKey(key).export({ format: "der", type: "spki" }).subarray(spki.length);
  return { pub, kid: kidOf(pub), bare: (bytes) => edSign(null, bytes, key), sign: (type, bytes) => edSign(null, pae(type, bytes), key) };
}
export const kidOf = (pub) => "ed25519:" + sha256(pub).toString("base64url");
export const instanceOf = (pub) => "mi1" + lower32(sha256("spawnmesh-instance-v1", pub).subarray(0, 20));
export function verify(pub, type, bytes, sig) {
  const key = createPublicKey({ key: Buffer.concat([spki, pub]), format: "der", type: "spki" });
  return edVerify(null, pae(type, bytes), key, sig);
}

const small = ["00".repeat(32), "01" + "00".repeat(31), "ec" + "ff".repeat(30) + "7f", // points of small order
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"];
export function admitted(pub) {
  if (pub.length !== 32) return false;
  const y = Buffer.from(pub);
  y[31] &= 0x7f;
  const below = Buffer.compare(Buffer.from(y).reverse(), Buffer.from("7f" + "ff".repeat(30) + "ed", "hex")) < 0;
  return below && !small.includes(y.toString("hex"));
}

const pae = (type, bytes) => Buffer.concat([Buffer.from(`DSSEv1 ${type.length} ${type} ${bytes.length} `), Buffer.from(bytes)]);
const treeType = "application/vnd.spawnmesh.tree.v2";
const typeName = (t) => `application/vnd.spawnmesh.${t}.v2+json`;
export const types = ["command", "event", "result", "receipt", "peer", "keyset"];
const byName = Object.fromEntries(types.map((t) => [typeName(t), t]));
const leaf = (t, h) => sha256(Buffer.of(0), pae(typeName(t), h));
const rootText = (n, root) => Buffer.from(`${n} ${root.toString("hex")}`);

// seal signs one message alone: a tree of one leaf.
export function seal(key, type, header, body) {
  const h = { v: 2, id: header.id ?? randomUUID(), kind: header.kind, iss: header.iss, kid: key.kid, aud: header.aud, conn: header.conn,
    epoch: 1, seq: header.seq, iat: header.iat, exp: header.exp, wsp: "main", ...(header.re && { re: header.re }),
    body: { type: header.kind + ".v1", len: body.length, sha256: hex(body), enc: "none" } };
  const bytes = Buffer.from(JSON.stringify(h));
  const sig = key.sign(treeType, rootText(1, leaf(type, bytes)));
  return { header: h, digest: hex(bytes), envelope: Buffer.from(encode(typeName(type), b64(bytes), { size: 1, index: 0, path: "" },
    [{ keyid: key.kid, sig: b64(sig) }], b64(body))) };
}
const encode = (payloadType, payload, tree, signatures, body) => JSON.stringify({ payloadType, payload, tree, signatures, body });

// A Dropped message has no effect and no answer (steps 1 to 6). A Refused one is stored with its code (steps 7 to 9).
export class Dropped extends Error { constructor(code) { super(code); this.code = code; } }
export class Refused extends Error { constructor(code, why) { super(`${code}: ${why}`); this.code = code; this.why = why; } }
const drop = (wrong, code) => { if (wrong) throw new Dropped(code); };
const bytesOf = (text, limit) => {
  const bytes = Buffer.from(text, "base64");
  drop(bytes.toString("base64") !== text || bytes.length > limit, "ENV_B64");
  return bytes;
};
const is = { int: Number.isSafeInteger, text: (v) => typeof v === "string" };

// open makes the checks 1 to 6 of section 5.4. `peer` says whose keys are known: {self, hub, conn, keys: {kid: pub}, identity: kid}.
export function open(raw, peer) {
  drop(raw.length > 256 * 1024, "ENV_SIZE");
  drop(raw.some((b) => b < 0x20 || b > 0x7e), "ENV_CANON");
  const text = raw.toString("latin1");
  let e;
  try { e = JSON.parse(text); } catch { throw new Dropped("ENV_JSON"); }
  drop(!e || !is.text(e.payloadType) || !is.text(e.payload) || !e.tree || !is.int(e.tree.size) || !is.int(e.tree.index) || !is.text(e.tree.path) ||
    !Array.isArray(e.signatures) || !e.signatures.every((s) => s && is.text(s.keyid) && is.text(s.sig)) || !is.text(e.body), "ENV_JSON");
  const type = byName[e.payloadType];
  drop(!type, "ENV_TYPE");
  const { size: n, index: i, path } = e.tree;
  drop(encode(e.payloadType, e.payload, { size: n, index: i, path }, e.signatures.map(({ keyid, sig }) => ({ keyid, sig })), e.body) !== text, "ENV_CANON");
  drop(e.signatures.length < 1 || e.signatures.length > (type === "peer" || type === "keyset" ? 4 : 1), "ENV_SIGCOUNT");
  drop(n < 1 || n > 64 || i < 0 || i >= n, "ENV_CANON");
  const bytes = bytesOf(e.payload, 4096), nodes = bytesOf(path, 64 * 32), body = bytesOf(e.body, 184320);
  const b = (i ^ (n - 1)).toString(2).length * ((i ^ (n - 1)) > 0), ones = [...(i >> b).toString(2)].filter((d) => d === "1").length;
  drop(nodes.length !== 32 * (b + ones), "ENV_B64");
  const root = rootText(n, rootOf(leaf(type, bytes), n, i, nodes));
  const kids = new Set();
  for (const s of e.signatures) {
    const sig = bytesOf(s.sig, 64);
    drop(sig.length !== 64, "ENV_B64");
    drop(kids.has(s.keyid), "ENV_SIGCOUNT");
    kids.add(s.keyid);
    const pub = peer.keys[s.keyid];
    drop(!pub || (s.keyid === peer.identity && type !== "keyset" && type !== "peer"), "KEY_UNKNOWN");
    drop(!verify(pub, treeType, root, sig), "SIG_BAD");
  }
  drop(type === "keyset" && !kids.has(peer.identity), "KEYSET_SIGNER");
  const h = header(bytes, type);
  drop(h.kid !== e.signatures[0].keyid, "KID_MISMATCH");
  drop(h.iss !== peer.hub, "ISS_MISMATCH");
  drop(h.aud !== peer.self, "AUD_MISMATCH");
  drop(h.conn !== peer.conn, "CONN_UNKNOWN");
  drop(h.epoch !== 1, "EPOCH_STALE");
  return { type, header: h, kids, body, raw, digest: hex(bytes), sealOf: hex(JSON.stringify({ ...h, seq: 0, kid: "", iat: 0, exp: 0 })) };
}

function rootOf(r, n, i, nodes) {
  for (let m = n - 1, at = 0; at < nodes.length; at += 32) {
    while (i === m && i % 2 === 0 && m !== 0) { i >>= 1; m >>= 1; }
    const p = nodes.subarray(at, at + 32);
    r = i % 2 ? sha256(Buffer.of(1), p, r) : sha256(Buffer.of(1), r, p);
    i >>= 1; m >>= 1;
  }
  return r;
}

export const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const digestForm = /^[0-9a-f]{64}$/, instance = /^mi1[a-z2-7]{32}$/, kid = /^ed25519:[A-Za-z0-9_-]{43}$/;
const kindForm = /^[a-z][a-z0-9_]{0,31}(\.[a-z][a-z0-9_]{0,31}){1,2}$/, workspace = /^[a-z0-9][a-z0-9-]{0,62}$/;

// header reads H, which has one spelling, and checks each field (section 5.3).
function header(bytes, type) {
  let h;
  try { h = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)); } catch { throw new Dropped("HDR_JSON"); }
  drop(!h || typeof h !== "object" || Array.isArray(h), "HDR_JSON");
  const { v, id, kind, iss, kid: k, aud, conn, epoch, seq, iat, exp, wsp, re, body: b } = h;
  const again = { v, id, kind, iss, kid: k, aud, conn, epoch, seq, iat, exp, wsp, ...(re && { re: { id: re.id, sha256: re.sha256, attempt: re.attempt, fence: re.fence } }),
    body: b && { type: b.type, len: b.len, sha256: b.sha256, enc: b.enc } };
  drop(JSON.stringify(again) !== bytes.toString(), "HDR_CANON");
  const number = (x, from) => is.int(x) && x >= from, text = (x, form) => is.text(x) && form.test(x);
  drop(v !== 2 || !text(id, uuid) || !text(kind, kindForm) || !text(iss, instance) || !text(k, kid) || !text(aud, instance) || !text(conn, uuid) ||
    !number(epoch, 1) || !number(seq, 1) || !number(iat, 0) || !number(exp, 0) || !text(wsp, workspace) || !b, "HDR_FIELD");
  const answers = type === "event" || type === "result" || type === "receipt";
  drop(answers !== (re !== undefined) || (re && !(text(re.id, uuid) && text(re.sha256, digestForm) && number(re.attempt, 0) && number(re.fence, 0))), "HDR_FIELD");
  drop(!is.text(b.type) || !/\.v1$/.test(b.type) || !kindForm.test(b.type.slice(0, -3)) || !number(b.len, 0) || b.len > 184320 || !text(b.sha256, digestForm) || b.enc !== "none", "HDR_FIELD");
  return h;
}

const day = 24 * 3600 * 1000;
// timely makes the checks of step 7. What fails here is refused, and stored: its sender is known.
export function timely(m, now) {
  const { iat, exp, body } = m.header, ahead = m.header.kind === "agent.kill" ? day : 120e3; // a kill ends what it names, whoever's clock is wrong
  const limit = { command: 7, keyset: 90 }[m.type] ?? 30;
  if (exp <= iat || exp - iat > limit * day) throw new Refused("TIME_TTL", "the message lives too long, or not at all");
  if (iat > now + ahead) throw new Refused("TIME_FUTURE", "the message was issued in the future");
  if (exp < now - 120e3) throw new Refused("TIME_EXPIRED", "the message has expired");
  if (m.body.length !== body.len || hex(m.body) !== body.sha256) throw new Refused("BODY_DIGEST", "the body is not the one that was signed");
}
