// Numbers and histories: docs/protocol.md, sections 6.4 (Numbers) and 7.6.
import { sha256 } from "./wire.mjs";

// numbersOf writes a set of numbers as `through` and `gaps`, at most 1,000 of them.
export function numbersOf(seqs) {
  const all = [...seqs].sort((a, b) => a - b), gaps = [];
  let through = 0;
  for (const n of all) {
    if (n > through + 1) {
      if (gaps.length === 1000) break;
      gaps.push({ from: through + 1, to: n - 1 });
    }
    through = n;
  }
  return { through, gaps };
}
export const has = (set, n) => n <= set.through && !set.gaps.some((g) => g.from <= n && n <= g.to);

// digestOf covers the newest 1,000 of messages {seq, digest, exp} above base that expire after until.
export function digestOf(list, base, until) {
  const all = list.filter((m) => m.seq > base && m.exp > until).sort((a, b) => a.seq - b.seq).slice(-1000);
  const bytes = all.map((m) => { const n = Buffer.alloc(8); n.writeBigUInt64BE(BigInt(m.seq)); return Buffer.concat([n, Buffer.from(m.digest, "hex")]); });
  return { base, from: all[0]?.seq ?? 0, until, sha256: sha256(Buffer.concat(bytes)).toString("hex") };
}

// recalledOf tells a hub that was restored which spawns of it are here, from a number on.
export function recalledOf(stored, from) {
  const orders = [];
  let through = from - 1, bytes = 0;
  for (const m of [...stored].filter((m) => m.seq >= from).sort((a, b) => a.seq - b.seq)) {
    if (m.spawn && m.spawn.length <= (48 * 1024 * 4) / 3) {
      if (orders.length === 128 || (orders.length && bytes + m.spawn.length > (32 * 1024 * 4) / 3)) return { from, through, orders };
      orders.push(m.spawn);
      bytes += m.spawn.length;
    }
    through = m.seq;
  }
  return { from, through, done: true, orders };
}
