/** The studio's answers. Written by page_types.py from the dataclasses of whatwhere/studio/api: do not edit. */

import type { Tensor } from "./wire";

/** Types of answers, by the name of the query or job. */
export interface Queries {
  "ask.answers": Asked;
  "tokens.find": FirstTokens;
  "tokens.card": TokenCard;
  "tokens.neighbors": TokenNeighbors;
  "tokens.analogy": AnalogyAnswers;
  "pipeline.walk": TextWalkthrough;
  "pipeline.read": FirstTokens;
  "biases.shown": BiasFindings;
  "compare.results": Findings;
  "schemes.list": SchemeList;
  "positions.shown": PositionFindings;
  "training.now": Training;
  "replay.frames": Frames;
  "replay.attention": Findings;
  "rotary.lab": RotaryLab;
  "maps.points": MapPoints;
  "maps.labels": TokenLabels;
  "maps.frequencies": TokenFrequencies;
  "maps.near": MapNeighbors;
  "maps.neighbors": AllNeighbors;
  "about": About;
  "overview.inspected": Findings;
  "diagnostics.examine": Findings;
  "compare.difference": Findings;
  "maps.draw": MapPoints;
}

/** whatwhere.analysis.added_positions */
export interface TrainedPositions {
  norms: Tensor;
  neighbor_cosine: Tensor;
  outliers: Tensor;
  spectrum: Spectrum;
  by_distance: Tensor;
  shift: number | null;
  trained: number;
}

/** whatwhere.analysis.biases */
export interface EffectiveRange { distance: Tensor; half: Tensor; peak: Tensor; mean: Tensor }

/** whatwhere.analysis.pca */
export interface Spectrum {
  explained_variance_ratio: Tensor;
  participation_ratio: number;
  axes_for_90: number | null;
  mean_cosine: number;
  mean_row_norm: number;
  rows: number;
  dim: number;
  sampled: boolean;
}

/** whatwhere.analysis.position_similarity */
export interface ByDistance { label: string; curves: Record<string, Tensor> }
export interface Fingerprint { label: string; values: Tensor }

/** whatwhere.analysis.rotary */
export interface RotarySpectrum {
  wavelengths: Tensor;
  unscaled: Tensor;
  slowdown: Tensor;
  rotations_trained: Tensor;
  rotations_claimed: Tensor;
  partial: Tensor;
  unseen: Tensor;
  constant: Tensor;
}

/** whatwhere.analysis.token_map */
export interface GroupNeighbors {
  nearest: Tensor;
  cosines: Tensor;
  stay: number;
  compared: number;
  within: [number, number] | null;
  between: [number, number] | null;
}
export interface NeighborsKept { share: number; k: number; queries: number; chance: number }

/** whatwhere.analysis.token_neighbors */
export interface AnalogyAnswers extends SearchedTable {
  rule: string;
  question: NamedRow[];
  without_inputs: Neighbor[];
  with_inputs: Neighbor[];
}
export interface NamedRow { token: string; id: number; text: string | null }
export interface Neighbor extends NamedRow { score: number }
export interface SearchedTable {
  path: string;
  table: string;
  others: string[];
  rows: number;
  dim: number;
  dtype: string;
  not_finite: NamedRow[];
  centered: boolean;
}

/** whatwhere.comparison.answers */
export interface Answer {
  scheme: string;
  seed: number;
  positions: number[];
  top: TokenProbability[];
  correct: boolean | null;
  correct_probability: number | null;
  at: number;
  in_length: number | null;
  attention: Tensor[];
}
export interface Answers {
  tokens: string[];
  ids: number[];
  correct: string | null;
  chosen: "median" | "all" | "given";
  trained: number[];
  answers: Answer[];
  without: NoAnswer[];
}
export interface NoAnswer { scheme: string; seed: number; reason: string }

/** whatwhere.comparison.results */
export interface LossesSoFar {
  scheme: string;
  seed: number;
  steps: number;
  losses: [number, number][];
  finished: boolean;
  held_out: [number, number][];
}
export interface TokenProbability { token: string; id: number; probability: number }

/** whatwhere.records */
export interface Missing { missing: string }

/** whatwhere.report.section */
export interface Chart {
  kind: "histogram" | "lines" | "bars" | "picture";
  title: string;
  x_label: string;
  y_label: string;
  x: number[];
  series: Series[];
  table: Table;
  note: string;
  method: string;
  marks: [number, string][];
  log_x: boolean;
  name: string;
  y_range: [number, number] | null;
}
export interface Headline { headline: string }
export interface Section { name: string; title: string; parts: (string | Table | Chart)[]; folded: boolean }
export interface Series {
  name: string;
  values: (number | null)[];
  look: number | null;
  low: (number | null)[];
  high: (number | null)[];
  reference: boolean;
}
export interface Table {
  caption: string;
  columns: string[];
  rows: string[][];
  numeric: number[];
  total: number | null;
  bars: number[] | null;
  shorten: "first" | "evenly" | "never";
  exact: Series[];
}

/** whatwhere.studio.api */
export interface About {
  kind: "checkpoint" | "results" | "training" | "fresh";
  name: string;
  path: string;
  format: string;
  model: string | null;
  tables: Partial<Record<"input" | "output", TableHeader>>;
  guessed: boolean;
  positions: number[] | null;
  begin: Record<string, Record<string, string | number | boolean>>;
  views: Record<string, View>;
  own: boolean;
  runs: string[];
  run_titles: string[];
  run: string;
  other: string | null;
  examples: string[];
  analogy: string[];
  exported: boolean;
}
export interface TableHeader { name: string; rows: number; dim: number; dtype: string }
export interface View {
  group: "Models" | "Tokens" | "Positions" | "Training";
  title: string;
  question: string;
  by_run: boolean;
}

/** whatwhere.studio.api.ask */
export interface Asked {
  answers: Answers;
  runs: string[];
  usual: Answers | null;
  seeds: number[];
  causal: boolean;
  digits: number[] | null;
  examples: string[];
}

/** whatwhere.studio.api.biases */
export interface BiasChoice { name: string; title: string; formula: string; url: string }
export interface BiasFindings {
  missing: string | null;
  unavailable: Record<string, string>;
  choices: BiasChoice[];
  scheme: string;
  repr: string;
  python: string;
  tensor: string | null;
  random: boolean;
  parameters: Parameter[];
  causal: boolean;
  heads: number;
  head: number;
  matrix: Tensor;
  examined: number;
  distances: Tensor;
  past: Tensor;
  later: Tensor | null;
  ranges: EffectiveRange;
  ranges_later: EffectiveRange | null;
}

/** whatwhere.studio.api.pipeline */
export interface RotaryPairs { first: Tensor; second: Tensor; frequencies: Tensor }
export interface TextWalkthrough extends SchemeSummary, FirstTokens {
  tensor: string | null;
  factor: number;
  layer: string;
  rows: Tensor;
  position_rows: Tensor | null;
  vectors: Tensor;
  angles: Tensor | null;
  head: number;
  scale: number;
  causal: boolean;
  q: Tensor;
  k: Tensor;
  mapped_q: Tensor;
  mapped_k: Tensor;
  products: Tensor;
  mapped_products: Tensor;
  bias: Tensor | null;
  scores: Tensor;
  weights: Tensor;
  pairs: RotaryPairs | null;
  seed: number;
}

/** whatwhere.studio.api.positions */
export interface PositionFindings extends SchemeSummary {
  door: "input" | "query_key" | "score" | null;
  rows: number;
  fingerprint: Fingerprint | null;
  by_distance: ByDistance | null;
  vectors: PositionVectors | Missing | null;
  wavelengths: Tensor | null;
  trained: number | null;
}
export interface PositionVectors extends TrainedPositions {
  compared: Tensor;
  cosines: Tensor;
  path: Tensor;
  variance_explained: Tensor;
}
export interface SchemeList { schemes: SchemeDescription[] }

/** whatwhere.studio.api.replay */
export interface DigitLine { along: Tensor; r: Tensor }
export interface Frames {
  run: string;
  words: string[];
  loss_steps: Tensor;
  losses: Tensor;
  held_out: Tensor;
  frames: TableFrames | null;
  missing: string | null;
}
export interface Plane { points: Tensor; variance_explained: Tensor }
export interface TableFrames {
  steps: Tensor;
  tables: Tensor;
  planes: Partial<Record<"table" | "change", Plane>>;
  norms: Tensor;
  line: DigitLine | null;
}
export interface Training { runs: LossesSoFar[]; looks: Record<string, number>; finished: boolean }

/** whatwhere.studio.api.rotary */
export interface PairRotations {
  python: string;
  follows_length: boolean;
  magnitude: number;
  trained: number;
  frequencies: Tensor;
  spectrum: RotarySpectrum;
  agreement: Tensor;
}
export interface RotaryConfiguration {
  preset: RotaryPreset;
  scaling: string;
  parameters: Parameter[];
  problem: string | null;
  rotations: PairRotations | null;
}
export interface RotaryLab {
  missing: string | null;
  presets: RotaryPreset[];
  scalings: Record<string, SchemeDescription>;
  claimed: number;
  sides: [RotaryConfiguration, RotaryConfiguration];
  distances: Tensor;
  agreement: Tensor | null;
}
export interface RotaryPreset {
  name: string;
  title: string;
  values: Record<string, number | boolean | string>;
  claimed: number;
  lengths: string;
  lists: [number[], number[]] | null;
}

/** whatwhere.studio.api.settings */
export interface Findings extends Headline { sections: Section[]; method: string }
export interface Parameter {
  name: string;
  kind: "flag" | "choice" | "whole" | "number";
  value: number | boolean | string;
  low: number;
  high: number;
  least: number | null;
  most: number | null;
  base: number | null;
  steps: number;
  choices: string[];
  help: string;
  rare: boolean;
}

/** whatwhere.studio.api.token_map */
export interface AllNeighbors { of: Tensor; ids: Tensor; thousandths: Tensor }
export interface MapNeighbors { id: number; ids: Tensor; cosines: Tensor }
export interface MapPoints {
  method: "pca" | "tsne" | "umap";
  table: string;
  name: string;
  rows: number;
  shown: number;
  not_finite: number;
  missing: Partial<Record<"pca" | "tsne" | "umap", string>>;
  kept: NeighborsKept | null;
  explained: [number, number] | null;
  ids: Tensor | null;
  coordinates: Tensor | null;
  named: NamedTokens | null;
}
export interface NamedTokens {
  groups: Tensor;
  group_names: string[];
  missing: Record<string, string>;
  neighbors: GroupNeighbors;
}
export interface TokenFrequencies { corpus: string | null; whole: boolean; counts: Tensor | null; total: number }
export interface TokenLabels {
  words: string[];
  texts: string[];
  kinds: Tensor;
  kind_names: string[];
  scripts: Tensor;
  script_names: string[];
  norms: Tensor;
}

/** whatwhere.studio.api.tokens */
export interface FirstTokens extends Tokens { count: number }
export interface NeighborList extends Tokens {
  table: string;
  name: string;
  centered: boolean;
  cosines: Tensor;
  norms: Tensor;
  rows: Tensor;
}
export interface RowInTable {
  name: string;
  dtype: string;
  rows: number;
  counts: Tensor;
  edges: Tensor;
  median: number;
  norm: number | null;
  percentile: number | null;
  row: Tensor | null;
}
export interface TokenCard {
  id: number;
  word: string;
  text: string | null;
  kind: string;
  script: string | null;
  bytes: Tensor;
  byte_count: number;
  characters: [string, string][];
  reachable: boolean | null;
  tables: Partial<Record<"input" | "output", RowInTable>>;
}
export interface TokenNeighbors {
  id: number;
  word: string;
  text: string | null;
  mean: Partial<Record<"input" | "output", number>>;
  lists: NeighborList[];
}
export interface Tokens { ids: Tensor; words: string[]; texts: (string | null)[]; kinds: string[] }

/** whatwhere.studio.schemes */
export interface DoorScheme { door: "input" | "query_key" | "score"; name: string; repr: string }
export interface SchemeSummary {
  title: string;
  notes: string[];
  doors: DoorScheme[];
  dim: number;
  num_heads: number;
  head_dim: number;
  python: string;
}

/** whatwhere.where.catalogue.entry */
export interface SchemeDescription extends SchemeFacts { shift_invariance: string; length: string; bibtex: string }
export interface SchemeFacts {
  name: string;
  door: "input" | "query_key" | "score" | null;
  formula: string;
  paper: string;
  url: string;
  year: number;
  used_by: string[];
  learned: boolean;
  relative: boolean;
  relative_below: number;
  any_length: boolean;
  causal_only: boolean;
  follows_length: boolean;
  keeps_norms: boolean;
  tested_up_to: number;
  distinct_up_to: number | null;
}
