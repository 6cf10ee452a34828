/** The studio's answers. Written by page_types.py from the dataclasses of whatwhere/studio/api: do not edit. */

import type { Tensor } from "./wire";

/** Types of answers, by the name of the query or job. */
export interface Answers {
  "about": About;
  "schemes.list": SchemeList;
  "pipeline.read": FirstTokens;
  "pipeline.walk": TextWalkthrough;
  "positions.shown": PositionFindings;
  "tokens.find": FirstTokens;
  "tokens.card": TokenCard;
  "tokens.neighbors": TokenNeighbors;
  "tokens.analogy": AnalogyAnswers;
  "maps.points": MapPoints;
  "maps.labels": TokenLabels;
  "maps.frequencies": TokenFrequencies;
  "maps.near": MapNeighbors;
  "maps.neighbors": AllNeighbors;
  "rotary.lab": RotaryLab;
  "biases.shown": BiasFindings;
  "compare.results": Measurements;
  "replay.frames": Frames;
  "replay.attention": Attention;
  "ask.answers": AskedRuns;
  "ask.attention": AskedAttention;
  "maps.draw": MapPoints;
  "diagnostics.examine": SuspiciousTokens;
  "overview.inspected": Findings;
  "compare.difference": Findings;
}

/** whatwhere.studio.api.about.About */
export interface About {
  kind: "checkpoint" | "results" | "fresh";
  name: string;
  path: string;
  format: string;
  model: string | null;
  tables: Partial<Record<"input" | "output", TableHeader>>;
  guessed: boolean;
  positions: number[] | null;
  begin: Record<string, Record<string, string | number | boolean>>;
  views: string[];
  own: boolean;
  runs: string[];
  run_titles: string[];
  run: string;
  other: string | null;
  tokenizer: boolean;
  examples: string[];
  analogy: string[];
  exported: boolean;
}

/** whatwhere.studio.api.token_map.AllNeighbors */
export interface AllNeighbors {
  of: Tensor;
  ids: Tensor;
}

/** whatwhere.analysis.token_neighbors.AnalogyAnswers */
export interface AnalogyAnswers {
  path: string;
  table: string;
  rows: number;
  dim: number;
  dtype: string;
  not_finite: NamedRow[];
  centered: boolean;
  rule: string;
  question: NamedRow[];
  without_inputs: Neighbor[];
  with_inputs: Neighbor[];
}

/** whatwhere.studio.api.ask.AskedAttention */
export interface AskedAttention {
  run: string;
  scheme: string;
  seed: number;
  tokens: string[];
  positions: number[];
  at: number;
  causal: boolean;
  layers: Tensor;
  digits: Tensor | null;
}

/** whatwhere.studio.api.ask.AskedRun */
export interface AskedRun {
  run: string;
  scheme: string;
  seed: number;
  top: TokenProbability[];
  correct: boolean | null;
  correct_probability: number | null;
  usual: TokenProbability | null;
  usual_correct_probability: number | null;
  missing: string | null;
}

/** whatwhere.studio.api.ask.AskedRuns */
export interface AskedRuns {
  tokens: string[];
  usual: number[];
  positions: number[];
  at: number | null;
  correct: string | null;
  trained: number[];
  seeds: number[];
  runs: AskedRun[];
}

/** whatwhere.studio.api.replay.Attention */
export interface Attention {
  run: string;
  unit: string;
  lengths: AttentionCurves[];
  missing: string | null;
}

/** whatwhere.studio.api.replay.AttentionCurves */
export interface AttentionCurves {
  length: number;
  distances: Tensor;
  layers: Tensor;
  uniform: Tensor | null;
}

/** whatwhere.studio.api.comparison.Baseline */
export interface Baseline {
  name: string;
  description: string;
  in_chart: boolean;
  values: Tensor;
}

/** whatwhere.analysis.token_diagnostics.BeyondVocabulary */
export interface BeyondVocabulary {
  count: number;
  ids: Tensor;
  examples: TokenRow[];
  median_norm: number | null;
}

/** whatwhere.studio.api.biases.BiasChoice */
export interface BiasChoice {
  name: string;
  title: string;
  formula: string;
  url: string;
}

/** whatwhere.studio.api.biases.BiasFindings */
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

/** whatwhere.analysis.position_similarity.ByDistance */
export interface ByDistance {
  label: string;
  curves: Record<string, Tensor>;
}

/** whatwhere.studio.api.tokens.Character */
export interface Character {
  code: string;
  name: string;
}

/** whatwhere.report.section.Chart */
export interface Chart {
  kind: "histogram" | "lines" | "bars";
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
}

/** whatwhere.studio.api.comparison.ComparedTask */
export interface ComparedTask {
  unit: string;
  trained: number[];
  trained_text: string;
  measure: string;
  scored: string;
  percent: boolean;
  groups: string[];
  shift_length: number;
}

/** whatwhere.studio.api.comparison.CurvesView */
export interface CurvesView {
  scheme: string;
  label: string;
  names: string[];
  distances: Tensor;
  values: Tensor;
}

/** whatwhere.studio.api.replay.DigitLine */
export interface DigitLine {
  along: Tensor;
  r: Tensor;
}

/** whatwhere.studio.schemes.DoorScheme */
export interface DoorScheme {
  door: "input" | "query_key" | "score";
  name: string;
  repr: string;
}

/** whatwhere.analysis.token_diagnostics.Duplicates */
export interface Duplicates {
  groups: number;
  rows: number;
  ids: number[][];
  examples: TokenRow[][];
}

/** whatwhere.analysis.biases.EffectiveRange */
export interface EffectiveRange {
  distance: Tensor;
  half: Tensor;
  peak: Tensor;
  mean: Tensor;
}

/** whatwhere.analysis.token_diagnostics.FarRow */
export interface FarRow {
  token: string;
  id: number;
  text: string | null;
  type: string;
  norm: number;
  distance: number;
  why: string | null;
}

/** whatwhere.analysis.token_diagnostics.FarRows */
export interface FarRows {
  count: number;
  ids: Tensor;
  examples: FarRow[];
  median_norm: number | null;
  median_distance: number | null;
  lowest: FarRow[];
  farthest: FarRow[];
}

/** whatwhere.studio.api.settings.Findings */
export interface Findings {
  headline: string;
  sections: Section[];
  method: string;
}

/** whatwhere.analysis.position_similarity.Fingerprint */
export interface Fingerprint {
  label: string;
  values: Tensor;
}

/** whatwhere.studio.api.comparison.FingerprintView */
export interface FingerprintView {
  scheme: string;
  rows: string;
  columns: string;
  description: string;
  values: Tensor;
}

/** whatwhere.studio.api.tokens.FirstTokens */
export interface FirstTokens {
  ids: Tensor;
  words: string[];
  texts: (string | null)[];
  kinds: string[];
  count: number;
}

/** whatwhere.studio.api.replay.Frames */
export interface Frames {
  run: string;
  words: string[];
  loss_steps: Tensor;
  losses: Tensor;
  frames: TableFrames | null;
  missing: string | null;
}

/** whatwhere.analysis.token_map.GroupNeighbors */
export interface GroupNeighbors {
  nearest: Tensor;
  cosines: Tensor;
  stay: number;
  compared: number;
  within: [number, number] | null;
  between: [number, number] | null;
}

/** whatwhere.analysis.token_diagnostics.HubRow */
export interface HubRow {
  token: string;
  id: number;
  text: string | null;
  type: string;
  norm: number;
  times: number;
}

/** whatwhere.analysis.token_diagnostics.Hubs */
export interface Hubs {
  queries: number;
  neighbors: number;
  expected: number;
  rows: HubRow[];
}

/** whatwhere.studio.api.token_map.MapNeighbors */
export interface MapNeighbors {
  id: number;
  ids: Tensor;
  cosines: Tensor | null;
}

/** whatwhere.studio.api.token_map.MapPoints */
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

/** whatwhere.studio.api.comparison.Measurements */
export interface Measurements {
  task: ComparedTask;
  schemes: string[];
  looks: number[];
  seeds: number[];
  lengths: Tensor;
  trained: number;
  in_length: Tensor;
  scores: Record<string, Tensor>;
  each: Tensor;
  baselines: Baseline[];
  layouts: Section[];
  shifts: Tensor;
  shift: Tensor;
  differences: Table | null;
  costs: ParameterCount[];
  milliseconds: number[];
  token_table: Table | null;
  number_lines: NumberLine[];
  fingerprints: FingerprintView[];
  curves: CurvesView[];
  sentences: Sentences;
  command: string | null;
  settings: Table;
  runs: Table;
}

/** whatwhere.records.Missing */
export interface Missing {
  missing: string;
}

/** whatwhere.studio.api.token_map.MissingToken */
export interface MissingToken {
  text: string;
  reason: string;
}

/** whatwhere.analysis.token_neighbors.NamedRow */
export interface NamedRow {
  token: string;
  id: number;
  text: string | null;
}

/** whatwhere.studio.api.token_map.NamedTokens */
export interface NamedTokens {
  groups: Tensor;
  group_names: string[];
  missing: MissingToken[];
  neighbors: GroupNeighbors;
}

/** whatwhere.analysis.token_neighbors.Neighbor */
export interface Neighbor {
  token: string;
  id: number;
  text: string | null;
  score: number;
}

/** whatwhere.studio.api.tokens.NeighborList */
export interface NeighborList {
  ids: Tensor;
  words: string[];
  texts: (string | null)[];
  kinds: string[];
  table: string;
  name: string;
  centered: boolean;
  cosines: Tensor;
  norms: Tensor;
  rows: Tensor;
}

/** whatwhere.analysis.token_map.NeighborsKept */
export interface NeighborsKept {
  share: number;
  k: number;
  queries: number;
  chance: number;
}

/** whatwhere.analysis.token_diagnostics.NotFiniteRow */
export interface NotFiniteRow {
  token: string;
  id: number;
  text: string | null;
  type: string;
  norm: number;
  nan: number;
  infinite: number;
}

/** whatwhere.report.comparison.NumberLine */
export interface NumberLine {
  scheme: string;
  coordinates: Tensor;
  r: number;
}

/** whatwhere.studio.api.token_map.PackedTexts */
export interface PackedTexts {
  bytes: Tensor;
  ends: Tensor;
}

/** whatwhere.studio.api.rotary.PairRotations */
export interface PairRotations {
  python: string;
  follows_length: boolean;
  magnitude: number;
  trained: number;
  frequencies: Tensor;
  spectrum: RotarySpectrum;
  agreement: Tensor;
}

/** whatwhere.report.section.Paragraph */
export interface Paragraph {
  text: string;
}

/** whatwhere.studio.api.settings.Parameter */
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

/** whatwhere.comparison.results.ParameterCount */
export interface ParameterCount {
  total: number;
  tokens: number | null;
  positions: number;
}

/** whatwhere.studio.api.replay.Plane */
export interface Plane {
  points: Tensor;
  variance_explained: Tensor;
}

/** whatwhere.studio.api.positions.PositionFindings */
export interface PositionFindings {
  title: string;
  notes: string[];
  doors: DoorScheme[];
  dim: number;
  num_heads: number;
  head_dim: number;
  python: string;
  door: "input" | "query_key" | "score" | null;
  rows: number;
  fingerprint: Fingerprint | null;
  by_distance: ByDistance | null;
  vectors: PositionVectors | Missing | null;
  wavelengths: Tensor | null;
}

/** whatwhere.studio.api.positions.PositionVectors */
export interface PositionVectors {
  norms: Tensor;
  neighbor_cosine: Tensor;
  outliers: Tensor;
  spectrum: Spectrum;
  by_distance: Tensor;
  shift: number | null;
  trained: number;
  compared: Tensor;
  cosines: Tensor;
  path: Tensor;
  variance_explained: Tensor;
}

/** whatwhere.studio.api.rotary.RotaryConfiguration */
export interface RotaryConfiguration {
  preset: RotaryPreset;
  scaling: string;
  parameters: Parameter[];
  problem: string | null;
  rotations: PairRotations | null;
}

/** whatwhere.studio.api.rotary.RotaryLab */
export interface RotaryLab {
  missing: string | null;
  presets: RotaryPreset[];
  scalings: Record<string, SchemeDescription>;
  claimed: number;
  sides: [RotaryConfiguration, RotaryConfiguration];
  distances: Tensor;
  agreement: Tensor | null;
}

/** whatwhere.studio.api.pipeline.RotaryPairs */
export interface RotaryPairs {
  first: Tensor;
  second: Tensor;
  frequencies: Tensor;
}

/** whatwhere.studio.api.rotary.RotaryPreset */
export interface RotaryPreset {
  name: string;
  title: string;
  values: Record<string, number | boolean | string>;
  claimed: number;
  lengths: string;
  lists: [number[], number[]] | null;
}

/** whatwhere.analysis.rotary.RotarySpectrum */
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

/** whatwhere.studio.api.inspection.RowHistogram */
export interface RowHistogram {
  edges: Tensor;
  groups: Record<string, Tensor>;
}

/** whatwhere.studio.api.tokens.RowInTable */
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

/** whatwhere.analysis.token_diagnostics.RowListOfNotFiniteRow */
export interface RowListOfNotFiniteRow {
  count: number;
  ids: Tensor;
  examples: NotFiniteRow[];
}

/** whatwhere.analysis.token_diagnostics.RowListOfTokenRow */
export interface RowListOfTokenRow {
  count: number;
  ids: Tensor;
  examples: TokenRow[];
}

/** whatwhere.analysis.token_diagnostics.RowListOfUnmovedRow */
export interface RowListOfUnmovedRow {
  count: number;
  ids: Tensor;
  examples: UnmovedRow[];
}

/** whatwhere.analysis.token_diagnostics.RowListOfUnreachableRow */
export interface RowListOfUnreachableRow {
  count: number;
  ids: Tensor;
  examples: UnreachableRow[];
}

/** whatwhere.where.catalogue.entry.SchemeDescription */
export interface SchemeDescription {
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
  shift_invariance: string;
  length: string;
}

/** whatwhere.studio.api.positions.SchemeList */
export interface SchemeList {
  schemes: SchemeDescription[];
}

/** whatwhere.report.section.Section */
export interface Section {
  name: string;
  title: string;
  parts: (Paragraph | Table | Chart)[];
}

/** whatwhere.studio.api.comparison.Sentences */
export interface Sentences {
  answer: string;
  scope: string;
  differences: string;
  question: string;
  scores: string;
  groups: string;
  shift: string;
  table: string;
  doors: string;
  distance: string;
  record: string;
  repeat: string;
}

/** whatwhere.report.section.Series */
export interface Series {
  name: string;
  values: (number | null)[];
  look: number | null;
}

/** whatwhere.analysis.pca.Spectrum */
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

/** whatwhere.studio.api.inspection.SuspiciousTokens */
export interface SuspiciousTokens {
  name: string;
  found: TokenDiagnostics;
  none_suspected: string;
  norms: RowHistogram;
  cosines: RowHistogram;
}

/** whatwhere.report.section.Table */
export interface Table {
  caption: string;
  columns: string[];
  rows: string[][];
  numeric: number[];
  total: number | null;
  bars: number[] | null;
  shorten: "first" | "evenly" | "never";
}

/** whatwhere.studio.api.replay.TableFrames */
export interface TableFrames {
  steps: Tensor;
  tables: Tensor;
  planes: Partial<Record<"table" | "change", Plane>>;
  norms: Tensor;
  line: DigitLine | null;
}

/** whatwhere.studio.api.about.TableHeader */
export interface TableHeader {
  name: string;
  rows: number;
  dim: number;
  dtype: string;
}

/** whatwhere.studio.api.pipeline.TextWalkthrough */
export interface TextWalkthrough {
  ids: Tensor;
  words: string[];
  texts: (string | null)[];
  kinds: string[];
  count: number;
  title: string;
  notes: string[];
  doors: DoorScheme[];
  dim: number;
  num_heads: number;
  head_dim: number;
  python: string;
  tensor: string | null;
  factor: number;
  rows: Tensor;
  position_rows: Tensor | null;
  vectors: Tensor;
  angles: Tensor | null;
  head: number;
  scale: number;
  causal: boolean;
  q: Tensor;
  mapped_q: Tensor;
  products: Tensor;
  mapped_products: Tensor;
  bias: Tensor | null;
  scores: Tensor;
  pairs: RotaryPairs | null;
  seed: number;
}

/** whatwhere.studio.api.tokens.TokenCard */
export interface TokenCard {
  id: number;
  word: string;
  text: string | null;
  kind: string;
  script: string | null;
  bytes: Tensor;
  byte_count: number;
  characters: Character[];
  reachable: boolean | null;
  tables: Partial<Record<"input" | "output", RowInTable>>;
}

/** whatwhere.analysis.token_diagnostics.TokenDiagnostics */
export interface TokenDiagnostics {
  rows: number;
  under_trained: UnderTrained;
  far: FarRows;
  unreachable: RowListOfUnreachableRow | Missing;
  duplicates: Duplicates;
  hubs: Hubs;
  zero: RowListOfTokenRow;
  not_finite: RowListOfNotFiniteRow;
  beyond_vocabulary: BeyondVocabulary | Missing;
  unmoved: RowListOfUnmovedRow | null;
}

/** whatwhere.studio.api.token_map.TokenFrequencies */
export interface TokenFrequencies {
  corpus: string | null;
  whole: boolean;
  counts: Tensor | null;
  total: number;
}

/** whatwhere.studio.api.token_map.TokenLabels */
export interface TokenLabels {
  words: PackedTexts;
  texts: PackedTexts;
  kinds: Tensor;
  kind_names: string[];
  scripts: Tensor;
  script_names: string[];
  norms: Tensor;
}

/** whatwhere.studio.api.tokens.TokenNeighbors */
export interface TokenNeighbors {
  id: number;
  word: string;
  text: string | null;
  mean: Partial<Record<"input" | "output", number>>;
  lists: NeighborList[];
}

/** whatwhere.comparison.results.TokenProbability */
export interface TokenProbability {
  token: string;
  id: number;
  probability: number;
}

/** whatwhere.analysis.token_diagnostics.TokenRow */
export interface TokenRow {
  token: string;
  id: number;
  text: string | null;
  type: string;
  norm: number;
}

/** whatwhere.analysis.token_diagnostics.UnderTrained */
export interface UnderTrained {
  count: number;
  ids: Tensor;
  examples: UnderTrainedRow[];
  reference: Tensor;
  threshold: number;
  decisive: boolean;
  highest: number | null;
  also_unreachable: number | null;
}

/** whatwhere.analysis.token_diagnostics.UnderTrainedRow */
export interface UnderTrainedRow {
  token: string;
  id: number;
  text: string | null;
  type: string;
  norm: number;
  cosine: number;
  proximity: number;
  reachable: boolean | null;
}

/** whatwhere.analysis.token_diagnostics.UnmovedRow */
export interface UnmovedRow {
  token: string;
  id: number;
  text: string | null;
  type: string;
  norm: number;
  factor: number;
}

/** whatwhere.analysis.token_diagnostics.UnreachableRow */
export interface UnreachableRow {
  token: string;
  id: number;
  text: string | null;
  type: string;
  norm: number;
  tried: string;
  read_as: string[];
}
