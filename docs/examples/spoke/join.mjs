// Joining a hub with a token: docs/protocol.md, section 3.
import { createHmac, randomBytes } from "node:crypto";
import { dial, nkey } from "./link.mjs";
import { admitted, instanceOf, sha256, signer, upper32, uuid, verify } from "./wire.mjs";

const handshake = "application/vnd.spawnmesh.handshake.v1+json";

export function readToken(text) {
  const [version, json, secret, more] = text.trim().split(".");
  if (version !== "amj1" || !secret || more !== undefined) throw new Error("SPAWNMESH_TOKEN is not a join token: copy the whole line of spawnmesh invite");
  const token = JSON.parse(Buffer.from(json, "base64url"));
  if (token.expires < Date.now()) throw new Error("the join token has expired: ask the hub's operator for another one");
  return { ...token, key: sha256("spawnmesh-join-proof-v1", Buffer.from(secret, "base64url")) };
}

// add is the transcript with one more message.
const length = (n) => { const b = Buffer.alloc(8); b.writeBigUInt64BE(BigInt(n)); return b; };
const add = (t, role, message) => sha256(t, length(role.length), role, length(message.length), message);

// join runs the handshake and returns the connection.
export async function join(token, keys) {
  const invite = token.id.replaceAll("-", "");
  let exporter, user;
  const nc = await dial({ address: token.address, pin: token.pin, inbox: "_INBOX_join_", login: () => ({ user, pass: "" }), bound: (x) => {
    exporter = x;
    const session = invite + upper32(createHmac("sha256", token.key).update("spawnmesh-join-session-v1").update(invite).update(x).digest().subarray(0, 20));
    user = "join_" + session;
  } });
  const session = user.slice("join_".length);
  const inbox = `_INBOX_${user}.answer`;
  const sub = nc.subscribe(inbox)[Symbol.asyncIterator]();
  const ask = async (step, message) => {
    for (let tries = 0; ; tries++) {
      nc.publish(`mesh.join.${session}.${step}`, message, { reply: inbox });
      const { value: m } = await sub.next();
      if (!m) throw new Error("the hub ended the connection while joining");
      if (m.headers?.code !== 503 || tries > 100) return JSON.parse(m.string());
      await new Promise((r) => setTimeout(r, 100)); // it does not listen yet
    }
  };
  // opened checks a message of the hub, signed with the identity key that keyOf finds.
  const opened = (t, answer, keyOf) => {
    if (!answer.signed) throw new Error(`the hub refuses to be joined: ${answer.code}: ${answer.why}`);
    const bytes = Buffer.from(answer.signed.message, "base64"), m = JSON.parse(bytes), next = add(t, "hub", bytes);
    if (!verify(keyOf(m), handshake, next, Buffer.from(answer.signed.sig, "base64"))) throw new Error("the hub's signature of the handshake is wrong");
    return [m, next];
  };
  const b64 = (bytes) => bytes.toString("base64");
  const mine = { identity: signer(keys.identity), signing: signer(keys.signing), link: signer(keys.link) };
  const hello = Buffer.from(JSON.stringify({ protocols: ["v2"], invite: token.id, identity: b64(mine.identity.pub), signing: b64(mine.signing.pub),
    sealing: keys.sealing, link_key: nkey(keys.link), nonce: b64(randomBytes(32)) }));
  const t1 = add(sha256("spawnmesh-handshake-v1"), "channel", exporter);
  const [challenge, t3] = opened(add(t1, "spoke hello", hello), await ask("hello", hello), (m) => Buffer.from(m.identity, "base64"));
  const identity = Buffer.from(challenge.identity, "base64"), signing = Buffer.from(challenge.signing, "base64");
  if (!admitted(identity) || !admitted(signing) || identity.equals(signing) || instanceOf(identity) !== token.hub || challenge.protocol !== "v2" || !uuid.test(challenge.conn))
    throw new Error("the hub is not the one that the token names, or its keys are not acceptable");
  const p = add(t3, "prove", "");
  const proof = Buffer.from(JSON.stringify({ mac: b64(createHmac("sha256", token.key).update(p).digest()), identity: b64(mine.identity.sign(handshake, p)),
    signing: b64(mine.signing.sign(handshake, p)), link: b64(mine.link.sign(handshake, p)) }));
  const [accept] = opened(add(t3, "spoke proof", proof), await ask("proof", proof), () => identity);
  await nc.close();
  return { id: accept.conn, name: accept.name, hub: token.hub, hubName: challenge.name, address: token.address, pin: token.pin, identity: b64(identity), signing: b64(signing) };
}
