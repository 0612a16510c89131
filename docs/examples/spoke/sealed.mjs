// Values that are sealed to the spoke: docs/protocol.md, section 6.5. HPKE (RFC 9180) in base mode: X25519, HKDF-SHA256, ChaCha20-Poly1305.
import { createDecipheriv, createHmac, createPrivateKey, createPublicKey, diffieHellman } from "node:crypto";
import { Refused, sha256 } from "./wire.mjs";

const pkcs8 = Buffer.from("302e020100300506032b656e04220420", "hex"), spki = Buffer.from("302a300506032b656e032100", "hex");
const hmac = (key, ...parts) => parts.reduce((h, p) => h.update(p), createHmac("sha256", key)).digest();
const kem = Buffer.from("KEM\x00\x20", "latin1"), suite = Buffer.from("HPKE\x00\x20\x00\x01\x00\x03", "latin1"), none = Buffer.alloc(0);
const extract = (id, salt, label, ikm) => hmac(salt.length ? salt : Buffer.alloc(32), "HPKE-v1", id, label, ikm);
const expand = (id, key, label, info, length) => hmac(key, Buffer.of(0, length), "HPKE-v1", id, label, info, Buffer.of(1)).subarray(0, length);

export const sealingKid = (pub) => "x25519:" + sha256(pub).toString("base64url");

// hpkeOpen decrypts box, which is a key share of 32 bytes and the ciphertext, or throws.
function hpkeOpen(priv, pub, info, aad, box) {
  const share = box.subarray(0, 32), text = box.subarray(32, -16);
  const privateKey = createPrivateKey({ key: Buffer.concat([pkcs8, priv]), format: "der", type: "pkcs8" });
  const publicKey = createPublicKey({ key: Buffer.concat([spki, share]), format: "der", type: "spki" });
  const dh = diffieHellman({ privateKey, publicKey });
  if (dh.every((b) => b === 0)) throw new Error("a key share of low order");
  const shared = expand(kem, extract(kem, none, "eae_prk", dh), "shared_secret", Buffer.concat([share, pub]), 32);
  const context = Buffer.concat([Buffer.of(0), extract(suite, none, "psk_id_hash", none), extract(suite, none, "info_hash", info)]);
  const secret = extract(suite, shared, "secret", none);
  const cipher = createDecipheriv("chacha20-poly1305", expand(suite, secret, "key", context, 32), expand(suite, secret, "base_nonce", context, 12), { authTagLength: 16 });
  cipher.setAuthTag(box.subarray(-16));
  cipher.setAAD(aad, { plaintextLength: text.length });
  return Buffer.concat([cipher.update(text), cipher.final()]);
}

// place is what a box is bound to; vars are the variables that its values are for.
export function openBox(keys, key, { aud, conn, message, field }, aad, box) {
  const pub = Buffer.from(keys.sealing, "base64");
  try {
    if (key !== sealingKid(pub) || box.length < 48) throw new Error("another key, or no box");
    return hpkeOpen(Buffer.from(keys.unsealing, "base64"), pub, Buffer.from(`spawnmesh/seal/v1|${aud}|${conn}|${message}|${field}`), aad, box);
  } catch { throw new Refused("SEAL_OPEN", "the values of the environment cannot be opened"); }
}

// openValues returns the values of the variables of a spawn, in their order, what its files hold, and its standard input.
export function openValues(spoke, body, message) {
  if (!body.sealed) return { env: [], files: [], stdin: Buffer.alloc(0) };
  const aad = Buffer.from(body.env.map((e) => `${e.name}\0${e.as}\0`).join("") + body.files.map((f) => `\0${f.path}\0${f.exec ? "x" : ""}\0`).join("") + (body.stdin ? "\0\0" : ""));
  const plain = openBox(spoke.keys, body.sealed.key, { aud: spoke.self, conn: spoke.connection.id, message, field: "env" }, aad, Buffer.from(body.sealed.box, "base64"));
  let values;
  try { values = JSON.parse(plain.toString("utf8")); } catch { /* below */ }
  const bad = () => { throw new Refused("BAD_ENV", "the values do not fit the variables, files and standard input"); };
  if (!Array.isArray(values) || values.length !== body.env.length + body.files.length + body.stdin || !values.every((v) => typeof v === "string")) bad();
  const env = values.slice(0, body.env.length), rest = values.slice(body.env.length).map((v) => Buffer.from(v, "base64"));
  if (!env.every((v) => Buffer.byteLength(v) <= 65536 && !v.includes("\0")) || rest.some((b, i) => b.toString("base64") !== values[body.env.length + i])) bad();
  if (env.reduce((n, v) => n + Buffer.byteLength(v), 0) + rest.reduce((n, b) => n + b.length, 0) > 98304) throw new Refused(rest.length ? "VALIDATION" : "BAD_ENV", "the values have more than 96 KiB");
  return { env, files: rest.slice(0, body.files.length), stdin: body.stdin ? rest.at(-1) : Buffer.alloc(0) };
}
