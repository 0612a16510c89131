// Connections to the hub's message server: docs/protocol.md, sections 3.2, 4.1 and 4.5.
import { NatsConnectionImpl, setTransportFactory } from "@nats-io/nats-core/internal";
import transport from "@nats-io/transport-node/lib/node_transport.js";
import { sha256, signer, upper32 } from "./wire.mjs";

// The client begins with TLS at once (handshakeFirst), and knows no pins. So its transport is the package's own, which looks at the key
// of the certificate when TLS stands and before anything is sent; no name, date or chain of the certificate counts.
class PinnedTransport extends transport.NodeTransport {
  async tlsFirst(hp) {
    const socket = await super.tlsFirst(hp);
    const { pin, bound } = this.options.tls;
    const key = socket.getPeerX509Certificate().publicKey.export({ type: "spki", format: "der" });
    if (sha256(key).toString("base64url") !== pin) {
      socket.destroy();
      throw new Error("the hub showed another TLS key than the pinned one; nothing was sent to it");
    }
    bound?.(socket.exportKeyingMaterial(32, "EXPORTER-spawnmesh-join", Buffer.alloc(0)));
    return socket;
  }
}

// dial makes one connection. login returns what CONNECT carries, from the nonce; bound is told of the TLS exporter before that.
export function dial({ address, pin, inbox, name, login, bound }) {
  setTransportFactory({ factory: () => new PinnedTransport(), dnsResolveFn: transport.nodeResolveHost });
  return NatsConnectionImpl.connect({ servers: address, reconnect: false, timeout: 5000, name, inboxPrefix: inbox, authenticator: login,
    tls: { handshakeFirst: true, rejectUnauthorized: false, minVersion: "TLSv1.3", pin, bound } });
}

// nkey is the text of a link key (section 2), nkeyLogin the login with it.
export function nkey(seed) {
  const bytes = Buffer.concat([Buffer.of(0xa0), signer(seed).pub]);
  let crc = 0;
  for (const b of bytes) {
    crc ^= b << 8;
    for (let i = 0; i < 8; i++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return upper32(Buffer.concat([bytes, Buffer.of(crc & 0xff, crc >> 8)]));
}
export const nkeyLogin = (seed, user) => (nonce) => {
  if (!/^[A-Za-z0-9_-]{15}$/.test(nonce)) throw new Error("the hub asks for a signature of something that is no nonce");
  return { nkey: nkey(seed), sig: signer(seed).bare(Buffer.from(nonce)).toString("base64url"), ...(user && { user, pass: "" }) };
};
