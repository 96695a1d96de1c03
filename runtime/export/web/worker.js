// A thread of a model compiled by Graft: it waits for loops to share, for ever.
const work = ({ module, memory }) => new WebAssembly.Instance(module, { graft: { memory } }).exports.work();

if (typeof process !== "undefined" && process.versions?.node) {
  work((await import("node:worker_threads")).workerData);
} else {
  globalThis.onmessage = ({ data }) => work(data);
}
