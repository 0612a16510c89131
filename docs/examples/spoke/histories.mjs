// Numbers and histories: docs/protocol.md, sections 6.4 (Numbers) and 7.6.
import { sha256 } from "./wire.mjs";

// numbersOf writes a set of numbers, and of ranges of them, as `through` and `gaps`, at most 1,000 of them.
export function numbersOf(seqs, ranges = []) {
  const all = [...[...seqs].map((n) => ({ from: n, to: n })), ...ranges].sort((a, b) => a.from - b.from), gaps = [];
  let through = 0;
  for (const { from, to } of all) {
    if (from > through + 1) {
      if (gaps.length === 1000) break;
      gaps.push({ from: through + 1, to: from - 1 });
    }
    through = Math.max(through, to);
  }
  return { through, gaps };
}
// merged joins ranges that touch.
export function merged(ranges) {
  const out = [];
  for (const r of [...ranges].sort((a, b) => a.from - b.from)) {
    const last = out.at(-1);
    if (last && r.from <= last.to + 1) last.to = Math.max(last.to, r.to);
    else out.push({ ...r });
  }
  return out;
}
export const has = (set, n) => n <= set.through && !set.gaps.some((g) => g.from <= n && n <= g.to);

// digestOf covers the newest 1,000 of messages {seq, digest, exp} with the newest 20,000 numbers up to through, above base, that expire after until.
export function digestOf(list, base, through, until) {
  return digestOfAll(list.filter((m) => m.seq > Math.max(base, through - 20000) && m.seq <= through && m.exp > until).sort((a, b) => a.seq - b.seq).slice(-1000), base, until);
}

// digestIn covers what the peer's digest d says that it covers, up to through: that is the peer's choice.
export function digestIn(list, d, through) {
  return digestOfAll(list.filter((m) => d.from > 0 && m.seq >= d.from && m.seq <= through && m.exp > d.until).sort((a, b) => a.seq - b.seq), d.base, d.until);
}

function digestOfAll(all, base, until) {
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
