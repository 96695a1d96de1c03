/** Return what the module exports. */
async function instantiated(binary) {
  const { instance } = await WebAssembly.instantiate(binary, {});
  return { exports: instance.exports, threads: 1, close() {} };
}

