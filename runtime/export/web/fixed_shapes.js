/** Shapes of numbers: what lies where was known when the module was written. */
class Shapes {
  /** Return the elements given for an input. */
  taken(input, given) {
    const Kind = ARRAYS[input.dtype], count = input.bytes / Kind.BYTES_PER_ELEMENT;
    if (!(given instanceof Kind) || given.length !== count) {
      const found = given === undefined ? "nothing" : `${given?.constructor?.name} of ${given?.length}`;
      throw new TypeError(`input '${input.name}' is ${input.dtype}[${input.shape}]: `
        + `give a ${Kind.name} of ${count}, not ${found}`);
    }
    return { data: given };
  }

  bind() {}

  address(row) {
    return row.address;
  }

  shape(row) {
    return row.shape;
  }

  result(row, data) {
    return data;
  }
}

