// Tasks and the processes that run them: docs/protocol.md, sections 6.3, 7.3 and 7.4. Every change of a task is committed together with the
// messages that tell of it. A task is {task, body, order: {id, sha256, exp}, state, reason, attempt, fence, tries, losses, attempts: {n: {...}}, result}.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, openSync, closeSync, existsSync, readFileSync, readSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { openValues } from "./sealed.mjs";
import { Refused } from "./wire.mjs";

// capabilities are what this spoke says that it has: it takes files and standard input with an order.
export const capabilities = ["inline-files"];

const ended = ["completed", "failed", "cancelled", "expired", "unavailable"];
// A kill wins over a cancel; what may finish ("after") is not ended by anybody.
const byKill = (kills) => ({ reason: kills.every((k) => k.cancel) ? "cancel_requested" : "kill_requested" });
const ending = (kills) => (kills ?? []).filter((k) => k.cancel !== "after");

// startOf tells one process from a later one with the same number.
const startOf = (pid) => { try { return readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ")[19]; } catch { return ""; } };
const signal = (pid, name) => { try { process.kill(-pid, name); } catch { /* it has ended */ } };

export class Agents {
  constructor(spoke, dir, slots) { Object.assign(this, { spoke, dir, slots, live: new Map() }); }
  get db() { return this.spoke.db; }
  task(id) { return this.db.get("task:" + id); }
  open() { return [...this.db.all("task:")].filter((t) => !ended.includes(t.state)); }
  path(task, attempt, stream) { return `${this.dir}/${task}/${attempt}/${stream}`; }

  // recover says what became of attempts that a crash cut off: their agents are ended, and lost.
  recover() {
    for (const t of this.open().filter((t) => t.state === "claimed" || t.state === "running")) {
      const { pid, start } = t.attempts[t.attempt];
      if (pid && startOf(pid) === start) signal(pid, "SIGKILL");
      this.finish(t, { outcome: "interrupted", exit: { code: -1, error: "the spoke ended while the agent ran" } });
    }
  }

  // The answers to commands. Each returns the changes, for one transaction with the message itself.
  spawn(tx, m, body) {
    const order = { id: m.header.id, sha256: m.header.body.sha256, exp: m.header.exp }, t = this.task(body.task);
    if (!t && this.db.get("tombstone:" + body.task)) return tx.refuse(m, "TOMBSTONE", "the task was killed before it arrived", body.task);
    const lacks = body.capabilities.filter((c) => !capabilities.includes(c));
    if (!t && lacks.length) return tx.refuse(m, "CAPABILITY", `this spoke does not have ${lacks.join(", ")}`, body.task);
    try { openValues(this.spoke, body, m.header.id); } catch (err) {
      if (!(err instanceof Refused)) throw err;
      return tx.refuse(m, err.code, err.message, body.task);
    }
    if (!t) {
      tx.put("task:" + body.task, { task: body.task, body, order, state: "queued", reason: "", attempt: 0, fence: 0, tries: 0, losses: 0, attempts: {} });
      return tx.answer(m, "agent.accepted", { task: body.task, state: "queued" });
    }
    if (canonical(unsealed(t.body)) !== canonical(unsealed(body))) return tx.refuse(m, "TASK_CONFLICT", "the task's id was used before with another body", body.task);
    const now = { ...t, body, order: { ...order, exp: Math.max(order.exp, t.order.exp) } };
    tx.put("task:" + body.task, now);
    if (t.state === "running") tx.send("agent.started", this.started(now), this.re(now, now.attempt));
    tx.answer(m, "agent.accepted", { task: body.task, state: t.state, known: true });
    if (ended.includes(t.state)) tx.send("agent.result", t.result, this.re(now, now.attempt));
  }

  kill(tx, m, body) {
    const t = this.task(body.task);
    if (!t) {
      tx.put("tombstone:" + body.task, m.header.exp + 24 * 3600e3);
      return tx.answer(m, "agent.accepted", { task: body.task, state: "cancelled" });
    }
    tx.answer(m, "agent.accepted", { task: body.task, state: t.state });
    const kill = { id: m.header.id, sha256: m.header.body.sha256, until: Date.now() + body.grace_ms, cancel: body.cancel ?? "" };
    if (ended.includes(t.state)) return tx.send("agent.killed", { task: t.task, state: t.state, reason: t.reason, at: Date.now() }, this.reKill(kill));
    const now = { ...t, fence: t.fence + 1, kills: [...(t.kills ?? []), kill] };
    tx.put("task:" + t.task, now);
    if (t.state === "queued") this.end(tx, now, { state: "cancelled", ...byKill(now.kills), outcome: "", exit: { code: -1 } });
    else if (body.cancel !== "after") tx.then(() => this.stop(now));
    else if (!t.kills?.length) tx.send("agent.state", { task: t.task, state: t.state, reason: "cancel_requested", attempt: t.attempt, at: Date.now() }, this.re(now, now.attempt));
  }

  status(tx, m, body) {
    const t = this.task(body.task);
    if (!t) return tx.refuse(m, "UNKNOWN_TASK", "no such task is here", body.task);
    tx.answer(m, "agent.state", { task: t.task, state: t.state, reason: t.reason, attempt: t.attempt, at: Date.now() });
  }

  // pause is one of the things that a spoke may leave out.
  pause(tx, m, body) { tx.refuse(m, "CONFLICT", "this spoke does not pause agents", body.task); }

  re(t, attempt) { return { id: t.order.id, sha256: t.order.sha256, attempt, fence: attempt && attempt !== t.attempt ? t.attempts[attempt].fence : t.fence }; }
  reKill(k) { return { id: k.id, sha256: k.sha256, attempt: 0, fence: 0 }; }
  started(t) { const a = t.attempts[t.attempt]; return { task: t.task, attempt: t.attempt, pid: a.pid ?? 0, at: a.at }; }

  // stop ends the process of a task that is being killed: TERM, and KILL when the grace of one of its kills is over.
  stop(t) {
    const child = this.live.get(t.task);
    if (!child?.pid) return;
    const left = Math.min(...ending(t.kills).map((k) => k.until)) - Date.now();
    if (left > 0) signal(child.pid, "SIGTERM");
    setTimeout(() => { if (this.live.get(t.task) === child) signal(child.pid, "SIGKILL"); }, Math.max(0, left));
  }

  // work starts what may start now, the highest priority first, and ends what has expired.
  work() {
    const queued = this.open().filter((t) => t.state === "queued").sort((a, b) => b.body.priority - a.body.priority);
    for (const t of queued) {
      if (t.attempt === 0 && t.order.exp < Date.now()) this.spoke.transact((tx) => this.end(tx, t, { state: "expired", reason: "command_expired", outcome: "", exit: { code: -1 } }));
      else if (this.spoke.mayStart() && this.live.size < this.slots && (t.next ?? 0) <= Date.now()) this.start(t);
    }
  }

  // start commits that an attempt begins before it begins: after a crash it counts as begun.
  start(old) {
    const n = old.attempt + 1, t = { ...old, state: "claimed", attempt: n, fence: old.fence + 1 };
    t.attempts = { ...old.attempts, [n]: { fence: t.fence, at: Date.now(), streams: {} } };
    this.spoke.transact((tx) => tx.put("task:" + t.task, t));
    if (t.body.runtime === "noop") {
      this.spoke.transact((tx) => tx.send("agent.started", this.started(t), this.re(t, n)));
      return this.finish(t, { outcome: "succeeded", exit: { code: 0 } });
    }
    mkdirSync(this.path(t.task, n, "."), { recursive: true });
    const files = ["stdout", "stderr"].map((s) => openSync(this.path(t.task, n, s), "w"));
    const values = openValues(this.spoke, t.body, t.order.id);
    const env = { ...process.env, ...(t.body.trace && { TRACEPARENT: t.body.trace }), ...this.environment(t, n, values.env) };
    delete env.SPAWNMESH_TOKEN;
    const cwd = t.body.dir || this.path(t.task, n, "work"), stdin = this.bring(t, n, values);
    // A process group of its own, so that the whole tree can be ended; its output goes to files, so that nothing is lost with this process.
    const child = spawn(t.body.argv[0], t.body.argv.slice(1), { cwd, env, detached: true, stdio: [stdin, ...files] });
    [stdin, ...files].forEach(closeSync);
    this.live.set(t.task, child);
    let late;
    child.on("spawn", () => {
      const now = { ...this.task(t.task), state: "running" };
      now.attempts = { ...now.attempts, [n]: { ...now.attempts[n], pid: child.pid, start: startOf(child.pid), at: Date.now() } };
      this.spoke.transact((tx) => { tx.put("task:" + t.task, now); tx.send("agent.started", this.started(now), this.re(now, n)); });
      if (t.body.timeout_ms) late = setTimeout(() => { late = "over"; signal(child.pid, "SIGKILL"); }, t.body.timeout_ms);
      if (ending(now.kills).length) this.stop(now);
    });
    child.on("error", (err) => { if (!child.pid) this.finish(this.task(t.task), { outcome: "unavailable", exit: { code: -1, error: String(err) } }); });
    child.on("exit", (code, name) => {
      clearTimeout(late);
      signal(child.pid, "SIGKILL"); // what it has left behind
      const now = this.task(t.task);
      const ends = ending(now.kills), well = code === 0 && ends.every((k) => k.cancel);
      const outcome = ends.length && !well ? "killed" : late === "over" ? "timed_out" : code === 0 ? "succeeded" : "failed";
      this.finish(now, { outcome, exit: { code: code ?? -1, signal: name ?? "" } });
    });
  }

  // bring writes the files of a task into the directory that the attempt runs in, and returns what it reads, which has no name any more.
  bring(t, n, { files, stdin }) {
    const work = this.path(t.task, n, "work"), input = this.path(t.task, n, "stdin");
    mkdirSync(work, { recursive: true });
    t.body.files.forEach(({ path, exec }, i) => {
      mkdirSync(dirname(`${work}/${path}`), { recursive: true, mode: 0o700 });
      writeFileSync(`${work}/${path}`, files[i], { mode: exec ? 0o700 : 0o600, flag: "wx" });
    });
    writeFileSync(input, stdin, { mode: 0o600, flag: "wx" });
    try { return openSync(input, "r"); } finally { rmSync(input); }
  }

  // environment says what variables are set to; values that are to be files are written into a directory of the attempt.
  environment(t, n, values) {
    const dir = this.path(t.task, n, "secrets");
    return Object.fromEntries(t.body.env.map(({ name, as }, i) => {
      if (as !== "file") return [name, values[i]];
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      writeFileSync(`${dir}/${name}`, values[i], { mode: 0o600 });
      return [name, `${dir}/${name}`];
    }));
  }

  // finish ends an attempt. The task ends with it, or another attempt follows.
  finish(t, { outcome, exit }) {
    this.live.delete(t.task);
    rmSync(this.path(t.task, t.attempt, "secrets"), { recursive: true, force: true });
    if (this.spoke.over) return;
    const a = { ...t.attempts[t.attempt], ended: true }, now = { ...t, attempts: { ...t.attempts, [t.attempt]: a } };
    const lost = outcome === "interrupted", rerun = t.body.on_loss === "rerun";
    const most = lost && rerun ? Math.max(1, t.body.max_retries) : t.body.max_retries;
    this.spoke.transact((tx) => {
      if (t.kills) {
        const state = t.kills.every((k) => k.cancel) && { succeeded: "completed", timed_out: "expired", failed: "failed" }[outcome];
        return this.end(tx, now, { state: state || "cancelled", ...byKill(t.kills), outcome, exit });
      }
      if ((outcome === "failed" || lost) && t.tries < most) {
        Object.assign(now, { state: "queued", tries: t.tries + 1, next: Date.now() + (t.body.backoff_ms || 500) });
        tx.put("task:" + t.task, now);
        return tx.send("agent.ended", { task: t.task, attempt: t.attempt, outcome, state: "queued", exit, at: Date.now(), next: now.next }, this.re(now, t.attempt));
      }
      const spent = most > 0 ? "retries_exhausted" : lost ? "executor_died" : "";
      this.end(tx, now, { outcome, exit, ...{ succeeded: { state: "completed", reason: "" }, timed_out: { state: "expired", reason: "deadline_elapsed" },
        unavailable: { state: "unavailable", reason: "capability_missing" }, failed: { state: "failed", reason: spent }, interrupted: { state: "failed", reason: spent } }[outcome] });
    });
    this.spoke.wake();
  }

  // end commits the result of a task and the answers to its kills.
  end(tx, t, { state, reason, outcome, exit }) {
    const kill = t.kills?.reduce((a, b) => (b.until < a.until ? b : a));
    const result = { task: t.task, state, reason, attempt: t.attempt, outcome, exit, stdout: this.output(t, "stdout"), stderr: this.output(t, "stderr"),
      ...(kill && { kill: kill.id }), started_at: t.attempts[1]?.at ?? 0, ended_at: Date.now() };
    tx.put("task:" + t.task, { ...t, state, reason, result });
    tx.send("agent.result", result, this.re(t, t.attempt));
    for (const k of t.kills ?? []) tx.send("agent.killed", { task: t.task, state, reason, at: Date.now() }, this.reKill(k));
  }

  // output describes a stream of the last attempt.
  output(t, stream) {
    const path = this.path(t.task, t.attempt, stream);
    if (!existsSync(path)) return { bytes: 0 };
    const sum = createHash("sha256"), size = statSync(path).size;
    for (let at = 0; at < size; at += 65536) sum.update(this.piece(path, at, Math.min(65536, size - at)));
    return { bytes: size, size, sha256: sum.digest("hex") };
  }
  piece(path, at, length) {
    const buffer = Buffer.alloc(length), file = openSync(path, "r");
    try { return buffer.subarray(0, readSync(file, buffer, 0, length, at)); } finally { closeSync(file); }
  }
}

// unsealed is what two orders of the same task have in common: the values are sealed anew for each message, and each may belong to a trace.
const unsealed = (body) => ({ ...body, trace: "", ...(body.sealed && { sealed: { mark: body.sealed.mark } }) });

// canonical is a JSON value in one spelling: two orders are the same when their values are.
const canonical = (v) => JSON.stringify(v, (_, x) => (x && typeof x === "object" && !Array.isArray(x) ? Object.fromEntries(Object.entries(x).sort()) : x));
