export interface Inputs {
  @INPUTS@
}

export interface Outputs {
  @OUTPUTS@
}

export interface Tensor {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly @EXTENT@[];
}

export interface Model {
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  /** Compute on a typed array for each input; the results are copies, in row-major order. */
  run(inputs: Inputs): Promise<Outputs>;
  runSync(inputs: Inputs): Outputs;
  /** How many threads run it: 1 unless it was compiled for threads, and the page is isolated. */
  readonly threads: number;
  /** End its threads; it is not to be run any more. */
  close(): void;
}

/** Load the model from the files beside this module, or from bytes that are here already. */
export function load(given?: { module?: BufferSource; weights?: BufferSource; threads?: number }): Promise<Model>;
