// A model compiled by Graft: load() fetches module and weights, run() computes. No other file is needed.
const PLAN = "@PLAN@";

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, int16: Int16Array, int32: Int32Array,
  int64: BigInt64Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  bool: Uint8Array, float16: Uint16Array, bfloat16: Uint16Array,
};
const STATUS = { 1: "memory ran out", 6: "a loop makes another number of slices than its output has" };

/** Return the bytes of a file beside this module; in Node, from the disk. */
async function bytes(url) {
  if (url.protocol === "file:" && typeof process !== "undefined") {
    const { readFile } = await import("node:fs/promises");
    return readFile(url);
  }
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

const asBytes = (data) => (ArrayBuffer.isView(data)
  ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data));

function checked(weights) {
  const wanted = PLAN.weights.header;
  const found = Array.from(weights.subarray(0, wanted.length / 2), (one) => one.toString(16).padStart(2, "0")).join("");
  if (found !== wanted || weights.length !== PLAN.weights.bytes) {
    throw new Error(`the weights are not those of this module: ${weights.length} bytes of ${PLAN.weights.bytes}, `
      + `${found === wanted ? "the right" : "another"} header; export both again`);
  }
  return weights;
}

// @THREADS@
// @SHAPES@
class Model {
  #instance;
  #shapes;
  #fault = null;
  constructor(instance, shapes) {
    this.#instance = instance;
    this.#shapes = shapes;
    this.threads = instance.threads;
    const told = ({ name, dtype, shape }) => ({ name, dtype, shape: shape.map((one) => PLAN.texts?.[one] ?? one) });
    this.inputs = Object.freeze(PLAN.inputs.map(told));
    this.outputs = Object.freeze(PLAN.outputs.map(told));
  }

  /** Compute on a typed array for each input, or { data, shape } where the shape varies; return the like for outputs. */
  async run(feeds) {
    return this.runSync(feeds);
  }

  runSync(feeds) {
    if (this.#fault) throw new Error(`the model does not run any more (${this.#fault}); load it again`);
    for (const name of Object.keys(feeds)) {
      if (!PLAN.inputs.some((one) => one.name === name)) {
        throw new TypeError(`no input '${name}'; the model takes ${PLAN.inputs.map((one) => `'${one.name}'`).join(", ")}`);
      }
    }
    const { memory, run } = this.#instance.exports;
    const shapes = this.#shapes, given = PLAN.inputs.map((input) => shapes.taken(input, feeds[input.name]));
    shapes.bind(given);
    PLAN.inputs.forEach((input, at) => {
      const { data } = given[at];
      new ARRAYS[input.dtype](memory.buffer, shapes.address(input), data.length).set(data);
    });
    let status;
    try {
      status = run();
    } catch (error) {
      this.#fault = error.message;
      throw error;
    }
    if (status) throw new Error(this.#failure(status, memory));
    const results = {};
    for (const output of PLAN.outputs) {
      const count = shapes.shape(output).reduce((all, one) => all * one, 1);
      results[output.name] = shapes.result(output, new ARRAYS[output.dtype](memory.buffer, shapes.address(output), count).slice());
    }
    return results;
  }

  /** End the threads of the model, which is not to be run any more. */
  close() {
    this.#fault ??= "it was closed";
    this.#instance.close();
  }

  #failure(status, memory) {
    const view = new DataView(memory.buffer, PLAN.record), step = view.getInt32(0, true);
    if (status === 6) return STATUS[status];
    const nodes = (PLAN.failing[step] ?? []).map((one) => `'${one}'`).join(", ") || `step ${step}`;
    if (status in STATUS) return `${nodes}: ${STATUS[status]}`;
    const [a, b, c, d, e] = [8, 16, 24, 32, 40].map((place) => view.getBigInt64(place, true));
    const texts = [
      `index ${a} is out of range: axis ${b} has extent ${c}, so that ${d} to ${e} are legal`,
      `the operands make the extent ${a} of axis ${b} of the result, but the model states ${c}`,
    ];
    return `${nodes}: ${texts[view.getInt32(4, true)]}`;
  }
}

/**
 * Load the model. `module` and `weights` are bytes that are here already; without them, the files beside this one.
 * `threads` is the most that it may use.
 */
export async function load({ module, weights, threads } = {}) {
  const [code, data] = await Promise.all([
    module ?? bytes(new URL(PLAN.module, import.meta.url)), weights ?? bytes(new URL(PLAN.weights.file, import.meta.url)),
  ]);
  const binary = asBytes(code);
  if (!WebAssembly.validate(binary)) {
    throw new Error(`this engine does not take the module: it needs WebAssembly with ${PLAN.features.join(", ")}`);
  }
  const instance = await instantiated(binary, threads);
  const content = checked(asBytes(data)).subarray(PLAN.weights.header.length / 2);
  new Uint8Array(instance.exports.memory.buffer, PLAN.weights.address, content.length).set(content);
  return new Model(instance, new Shapes(instance.exports.memory));
}
