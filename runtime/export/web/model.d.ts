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
}

/** Load the model from the files beside this module, or from bytes that are here already. */
export function load(given?: { module?: BufferSource; weights?: BufferSource }): Promise<Model>;
