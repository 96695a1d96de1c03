const IS_NODE = typeof process !== "undefined" && Boolean(process.versions?.node);

/** Return how many processors there are, 1 where a page may not share memory with workers. */
async function processors() {
  if (IS_NODE) return (await import("node:os")).availableParallelism();
  return globalThis.crossOriginIsolated ? navigator.hardwareConcurrency : 1;
}

/** Start a worker. One that fails is missed by nobody: the others do its work. */
async function started(shared) {
  const url = new URL(PLAN.worker, import.meta.url);
  if (!IS_NODE) {
    const worker = new Worker(url, { type: "module" });
    worker.postMessage(shared);
    return worker;
  }
  const { Worker: NodeWorker } = await import("node:worker_threads");
  const worker = new NodeWorker(url, { workerData: shared });
  worker.on("error", () => {});
  worker.unref();
  return worker;
}

/** Return what the module exports, and the workers that take part in its loops. */
async function instantiated(binary, wanted) {
  const [initial, maximum] = PLAN.pages, most = await processors(), threads = Math.min(wanted ?? Math.min(most, 8), most);
  const memory = new WebAssembly.Memory({ initial, maximum, shared: true });
  const module = await WebAssembly.compile(binary);
  const { exports } = await WebAssembly.instantiate(module, { graft: { memory } });
  new DataView(memory.buffer).setInt32(PLAN.threads, threads, true);
  const workers = await Promise.all(Array.from({ length: threads - 1 }, () => started({ module, memory })));
  return { exports, threads, close: () => workers.forEach((one) => one.terminate()) };
}

