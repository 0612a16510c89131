// The spoke's state: a map of keys to JSON values, and a file that every change is appended to and synced in, as one line per transaction.
import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { dirname } from "node:path";

export class Journal {
  constructor(path) {
    this.map = new Map();
    mkdirSync(dirname(path), { recursive: true });
    // A line that was cut by a crash was never acknowledged to anybody: it is left out.
    const lines = existsSync(path) ? readFileSync(path, "utf8").split("\n").slice(0, -1) : [];
    for (const line of lines) this.apply(JSON.parse(line));
    const fresh = openSync(path + ".new", "w", 0o600);
    append(fresh, [...this.map]);
    renameSync(path + ".new", path);
    this.file = fresh;
    const dir = openSync(dirname(path), "r");
    fsyncSync(dir);
    closeSync(dir);
  }
  apply(changes) { for (const [key, value] of changes) if (value === null) this.map.delete(key); else this.map.set(key, value); }
  get(key) { return this.map.get(key); }
  *all(prefix) { for (const [key, value] of this.map) if (key.startsWith(prefix)) yield value; }
  // commit makes changes lasting, all or none of them.
  commit(changes) {
    append(this.file, changes);
    this.apply(changes);
  }
}

// append writes a line to the end of file and syncs it. A write may take only a part: what is left is written again, and where the disk is full that throws.
function append(file, changes) {
  const line = Buffer.from(JSON.stringify(changes) + "\n");
  for (let at = 0; at < line.length; ) at += writeSync(file, line, at);
  fsyncSync(file);
}
