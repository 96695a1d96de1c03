const product = (shape) => shape.reduce((all, one) => all * one, 1);

const OPERATIONS = {
  add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b, floordiv: (a, b) => Math.floor(a / b),
  mod: (a, b) => a - b * Math.floor(a / b), min: Math.min, max: Math.max,
};

const AGREEMENTS = {
  equal: (a, b) => a === b, broadcast: (a, b) => a === b || a === 1 || b === 1, expand: (a, b) => a === b || a === 1,
  "at most": (a, b) => a <= b,
};

/** Return places for rooms of so many bytes, in use from step `first` to `last`, and where they end: the largest first,
 *  each in the tightest gap. */
function placed(rooms) {
  const done = [];
  let end = 0;
  for (const room of [...rooms].sort((a, b) => b.bytes - a.bytes)) {
    const rivals = done.filter((one) => one.first <= room.last && room.first <= one.last);
    let begin = 0, best = Infinity, top = 0;
    for (const rival of rivals.sort((a, b) => a.begin - b.begin)) {
      const gap = rival.begin - top;
      if (gap >= room.bytes && gap < best) [best, begin] = [gap, top];
      top = Math.max(top, rival.begin + rival.bytes);
    }
    room.begin = best < Infinity ? begin : top;
    end = Math.max(end, room.begin + room.bytes);
    done.push(room);
  }
  return end;
}

/** Shapes that follow from those of the inputs: when they change, memory is planned, and words that the module reads
 *  are written: addresses and extents. */
class Shapes {
  #memory;
  #begin = PLAN.begin; // where rooms begin, and how many bytes there are for them
  #bytes;
  #symbols = null; // the numbers that are bound
  #extents = []; // what follows from them
  constructor(memory) {
    this.#memory = memory;
    this.#bytes = memory.buffer.byteLength - PLAN.begin;
  }

  #number(dimension, symbols, extents) {
    if (typeof dimension === "number") return dimension;
    return (dimension[0] === "s" ? symbols : extents)[Number(dimension.slice(1))];
  }

  /** Return data and shape given for an input; those of an array alone follow where one extent is open. */
  taken(input, given) {
    const Kind = ARRAYS[input.dtype], data = given instanceof Kind ? given : given?.data, open = [];
    input.shape.forEach((one, axis) => typeof one === "number" || open.push(axis));
    const wanted = `input '${input.name}' is ${input.says}: give ${open.length === 1 ? `a ${Kind.name}, or ` : ""}`
      + `{ data, shape } with a ${Kind.name} and ${input.shape.length} numbers`;
    if (!(data instanceof Kind)) throw new TypeError(`${wanted}, not ${given?.constructor?.name ?? "nothing"}`);
    let shape = given.shape;
    if (data === given) {
      if (open.length > 1) throw new TypeError(`${wanted}: the shape does not follow from ${data.length} elements`);
      shape = [...input.shape];
      const rest = product(shape.filter((one) => typeof one === "number"));
      if (open.length) shape[open[0]] = data.length / rest;
    }
    const are = Array.from(shape ?? [], Number), axis = input.shape.findIndex((one, at) => are[at] !== one && !open.includes(at));
    if (are.length !== input.shape.length || axis >= 0 || product(are) !== data.length || !are.every(Number.isSafeInteger)) {
      throw new TypeError(`${wanted}, not ${data.length} elements of shape [${are}]`);
    }
    return { data, shape: are };
  }

  bind(given) {
    const symbols = PLAN.symbols.map(({ input, axis }) => given[input].shape[axis]);
    if (!this.#symbols?.every((one, at) => one === symbols[at])) this.#rebind(symbols);
    PLAN.inputs.forEach((input, at) => input.shape.forEach((one, axis) => {
      const found = given[at].shape[axis], wanted = this.#number(one, symbols, this.#extents);
      if (found !== wanted) {
        const reason = PLAN.reasons.find((row) => row.input === at && row.axis === axis)?.says;
        if (reason) throw new RangeError(`${reason[0]}${found}${reason[1]}${wanted}${reason[2]}`);
        const text = PLAN.texts[one], of = PLAN.symbols.findIndex((symbol) => symbol.name === text);
        const why = of < 0 ? PLAN.symbols.map(({ name }, which) => `${name} = ${symbols[which]}`).join(", ") : `input `
          + `'${PLAN.inputs[PLAN.symbols[of].input].name}', axis ${PLAN.symbols[of].axis}`;
        throw new RangeError(`input '${input.name}' has ${found} at axis ${axis}, but `
          + `${of < 0 ? "" : "dimension "}'${text}' is ${wanted} (${why})`);
      }
    }));
  }

  #rebind(symbols) {
    PLAN.symbols.forEach(({ name, low, high, input, axis }, at) => {
      const found = symbols[at], where = `input '${PLAN.inputs[input].name}' has ${found} at axis ${axis}, but dimension`;
      if (found < low) throw new RangeError(`${where} '${name}' is at least ${low}`);
      if (high !== null && found > high) throw new RangeError(`${where} '${name}' is at most ${high}`);
    });
    const extents = [], binding = () => PLAN.symbols.map(({ name }, at) => `${name} = ${symbols[at]}`).join(", ");
    for (const [operator, left, right] of PLAN.extents) {
      const one = OPERATIONS[operator](this.#number(left, symbols, extents), this.#number(right, symbols, extents));
      if (!Number.isSafeInteger(one)) throw new RangeError(`an extent is no number that there is, for ${binding()}`);
      extents.push(one);
    }
    for (const { says, extent, low, high } of PLAN.bounds) {
      const found = this.#number(extent, symbols, extents);
      if (found < low || (high !== null && found > high)) {
        throw new RangeError(`'${says}' is ${found} for ${binding()}, but is ${found < low ? `at least ${low}` : `at most ${high}`}`);
      }
    }
    for (const { kind, left, right, says } of PLAN.equations) {
      const one = this.#number(left, symbols, extents), other = this.#number(right, symbols, extents);
      if (!AGREEMENTS[kind](one, other)) throw new RangeError(`${says[0]}${one}${says[1]}${other}${says[2]}`);
    }
    const rooms = PLAN.rooms.map(([bytes, first, last]) => {
      const size = this.#number(bytes, symbols, extents);
      if (size < 0) throw new RangeError(`the shape of a tensor has a negative extent, for ${binding()}`);
      return { bytes: Math.max(64, Math.ceil(size / 64) * 64), first, last };
    });
    const bytes = placed(rooms);
    try {
      if (bytes > this.#bytes) this.#grow(bytes);
    } catch (error) {
      throw new RangeError(`memory ran out: ${bytes} bytes for ${binding()}`, { cause: error });
    }
    const view = new DataView(this.#memory.buffer);
    for (const [place, room, offset] of PLAN.addresses) view.setUint32(place, this.#begin + rooms[room].begin + offset, true);
    for (const [place, dimension, size] of PLAN.numbers) {
      const one = this.#number(dimension, symbols, extents);
      if (size === 8) view.setBigInt64(place, BigInt(one), true);
      else view.setInt32(place, one, true);
    }
    view.setUint32(PLAN.free, this.#begin + bytes, true);
    [this.#symbols, this.#extents] = [symbols, extents];
  }

  /** Make room for so many bytes: behind what there is, or anew where other threads may have what is behind. */
  #grow(bytes) {
    if (PLAN.threads === undefined) {
      const missing = PLAN.begin + bytes - this.#memory.buffer.byteLength;
      if (missing > 0) this.#memory.grow(Math.ceil(missing / 65536));
      this.#bytes = this.#memory.buffer.byteLength - PLAN.begin;
      return;
    }
    const pages = Math.ceil(Math.max(bytes, 2 * this.#bytes) / 65536);
    [this.#begin, this.#bytes] = [this.#memory.grow(pages) * 65536, pages * 65536];
  }

  address(row) {
    return row.address ?? new DataView(this.#memory.buffer).getUint32(row.word, true);
  }

  shape(row) {
    return row.shape.map((one) => this.#number(one, this.#symbols, this.#extents));
  }

  result(row, data) {
    return row.is_fixed ? data : { data, shape: this.shape(row) };
  }
}

