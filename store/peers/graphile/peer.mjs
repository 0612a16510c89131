// graphile-worker as a contender: it answers the requests of the comparing
// process, lines of JSON on standard input, on standard output. The phases are
// those of the Go contenders; see phases.go beside this directory.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const about = new URL("node_modules/graphile-worker/package.json", import.meta.url);
const version = JSON.parse(readFileSync(about)).version;
const atOnce = 500; // jobs that run at a time
const queued = 2000; // jobs that a fetch takes
const maxConns = 16;
const quiet = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

let pool, utils;
let doing = () => {}; // what the task does

async function open(url) {
  const at = new URL(url.replace("@/", "@local/"));
  pool = new pg.Pool({
    host: at.searchParams.get("host"),
    port: Number(at.searchParams.get("port")),
    user: at.username,
    database: at.pathname.slice(1),
    max: maxConns,
  });
  const complain = (error) => console.error(error.message);
  pool.on("error", complain);
  pool.on("connect", (client) => client.on("error", complain));
  utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
  await utils.migrate();
  return {
    version: `${version} on Node.js ${process.versions.node}`,
    settings: `${atOnce} jobs at a time, local queue of ${queued}, completeJobBatchDelay 0, failJobBatchDelay 0, poll 20 ms, ${maxConns} connections; many: add_jobs`,
    phases: ["insert-one", "insert-many", "worked", "pickup"],
  };
}

// work starts the worker and returns a function that stops it.
async function work() {
  const runner = await run({
    pgPool: pool,
    logger: quiet,
    noHandleSignals: true,
    crontab: "",
    preset: {
      worker: {
        concurrentJobs: atOnce,
        pollInterval: 20,
        localQueue: { size: queued },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    taskList: { nothing: (payload) => doing(payload) },
  });
  return () => runner.stop();
}

const insert = (n) => utils.addJob("nothing", { n, ms: 0 });

// utils.addJobs would do the same and read back every row, which nobody wants here.
const addJobs = `select count(*) from graphile_worker.add_jobs(array(
  select json_populate_recordset(null::graphile_worker.job_spec, $1::json)))`;

function insertMany(from, to) {
  const specs = [];
  for (let n = from; n < to; n++) specs.push({ identifier: "nothing", payload: { n, ms: 0 } });
  return pool.query({ name: "add_jobs", text: addJobs, values: [JSON.stringify(specs)] });
}

// inserted calls put with ranges of size batch, several at a time.
async function inserted(name, count, conns, batch, put) {
  const began = performance.now();
  let next = 0;
  const one = async () => {
    for (;;) {
      const from = next;
      if (from >= count) return;
      next += batch;
      await put(from, Math.min(count, from + batch));
    }
  };
  await Promise.all(Array.from({ length: conns }, one));
  return { [name]: (count / (performance.now() - began)) * 1000 };
}

async function worked(count) {
  let done = 0;
  let began;
  const last = new Promise((resolve) => {
    doing = () => {
      if (++done === 1) began = performance.now();
      if (done === count) resolve();
    };
  });
  const stop = await work();
  await last;
  const left = "select exists (select from graphile_worker._private_jobs) as left";
  while ((await pool.query(left)).rows[0].left) await new Promise((r) => setTimeout(r, 2));
  const took = performance.now() - began;
  await stop();
  if (done !== count) throw new Error(`${done} jobs were worked, there were ${count}`);
  return { worked: (count / took) * 1000 };
}

async function pickup(count, rate) {
  const began = [];
  const times = [];
  const warm = 200_000_000; // above every other job's number
  let all, first;
  const every = new Promise((resolve) => (all = resolve));
  const running = new Promise((resolve) => (first = resolve));
  doing = ({ n }) => {
    if (n === warm) return first();
    times.push(performance.now() - began[n]);
    if (times.length === count) all();
  };
  const stop = await work();
  await insert(warm);
  await running;
  await new Promise((r) => setTimeout(r, 1000));
  const start = performance.now();
  const inserts = [];
  for (let n = 0; n < count; n++) {
    const wait = start + (n * 1000) / rate - performance.now();
    if (wait > 0) await new Promise((r) => setTimeout(r, wait));
    began[n] = performance.now();
    inserts.push(insert(n));
  }
  await Promise.all(inserts);
  await every;
  await stop();
  times.sort((a, b) => a - b);
  const at = (part) => times[Math.min(count - 1, Math.floor(part * count))];
  return { "pickup-p50": at(0.5), "pickup-p99": at(0.99) };
}

async function answer({ phase, url, jobs }) {
  switch (phase) {
    case "open":
      return { about: await open(url) };
    case "insert-one":
      return { values: await inserted(phase, jobs, 8, 1, insert) };
    case "insert-many":
      return { values: await inserted(phase, jobs, 4, 1000, insertMany) };
    case "worked":
      return { values: await worked(jobs) };
    case "pickup":
      return { values: await pickup(1000, 100) };
  }
  throw new Error(`graphile-worker has no phase ${phase}`);
}

for await (const line of createInterface({ input: process.stdin })) {
  let reply;
  try {
    reply = await answer(JSON.parse(line));
  } catch (error) {
    reply = { error: String(error?.stack ?? error) };
  }
  process.stdout.write(JSON.stringify(reply) + "\n");
}
await utils?.release();
await pool?.end();
