/** The studio's answers. Written by page_types.py from the dataclasses of whatwhere/studio/api: do not edit. */

import type { Tensor } from "./wire";

/** Types of answers, by the name of the query or job. */
export interface Answers {
  "about": About;
  "schemes.list": SchemeList;
  "pipeline.read": TextTokens;
  "pipeline.walk": TextWalkthrough;
  "positions.shown": PositionFindings;
  "tokens.find": MatchingTokens;
  "tokens.card": TokenCard;
  "tokens.neighbors": TokenNeighbors;
  "tokens.analogy": Analogy;
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
  "overview.inspected": Overview;
  "compare.difference": DifferenceReport;
}

/** What is open. */
export interface About {
  /** of whatwhere. */
  version: string;
  /** a model, the results of a comparison, or random vectors where nothing was opened. */
  kind: "checkpoint" | "results" | "fresh";
  /** for headings. */
  name: string;
  /** of the file or folder; "" where nothing was opened, and in an exported page. */
  path: string;
  /** of the checkpoint. */
  format: string;
  /** the model type of the configuration. */
  model: string | null;
  /** the token tables, input and output. */
  tables: Partial<Record<"input" | "output", TableHeader>>;
  /** whether both are the same; null where that is unknown. */
  tied: boolean | null;
  /** whether the token table was chosen by its size, for no name is known. */
  guessed: boolean;
  /** the shape of the position table. */
  positions: number[] | null;
  /** the settings that some views begin with, by the names of the views. */
  begin: Record<string, Record<string, string | number | boolean>>;
  /** those that have something to show, in their order; the first is opened. */
  views: string[];
  /** whether the file itself describes positions, by a configuration or a table. */
  own: boolean;
  /** of a comparison, such as "rotary-0"; on an exported page those of which it holds something. */
  runs: string[];
  /** how each of them is shown. */
  run_titles: string[];
  /** the one that views begin with; "" where there are none. */
  run: string;
  /** the path of a second checkpoint, which the first is compared with. */
  other: string | null;
  /** the number of tokens whose text is known. */
  words: number;
  /** whether there is one. */
  tokenizer: boolean;
  /** tokens to begin with. */
  examples: string[];
  /** three tokens of an analogy, or none. */
  analogy: string[];
  /** whether this is an exported page. */
  exported: boolean;
}

/** The nearest rows of every token in the full space. */
export interface AllNeighbors {
  /** the ids of the tokens. */
  of: Tensor;
  /** of their neighbors, nearest first. */
  ids: Tensor;
}

/** The three words of an analogy, and its answers. */
export interface Analogy {
  /** of the tokens. */
  ids: Tensor;
  /** as the vocabulary writes them. */
  words: string[];
  /** the text of each; null where its bytes are no text. */
  texts: (string | null)[];
  /** the token type of each. */
  kinds: string[];
  /** answers, the words of the question excluded. */
  without: AnalogyAnswers;
  /** answers, the words of the question allowed. */
  allowed: AnalogyAnswers;
}

/** Answers to an analogy, best first. */
export interface AnalogyAnswers {
  /** of the tokens. */
  ids: Tensor;
  /** as the vocabulary writes them. */
  words: string[];
  /** the text of each; null where its bytes are no text. */
  texts: (string | null)[];
  /** the token type of each. */
  kinds: string[];
  /** by the rule. */
  scores: Tensor;
}

/** The attention weights of one run on one sequence. */
export interface AskedAttention {
  /** its name. */
  run: string;
  /** its name in the comparison. */
  scheme: string;
  /** of the run. */
  seed: number;
  /** of the sequence. */
  tokens: string[];
  /** of the tokens. */
  positions: number[];
  /** the slot of the token at whose output the model answers. */
  at: number;
  /** whether no token attends to later ones. */
  causal: boolean;
  /** the weight of each key at each query; the weights of a query sum to 1. */
  layers: Tensor;
  /** the slots of an expression's digits; null of other tasks. */
  digits: Tensor | null;
}

/** The answer of one run. */
export interface AskedRun {
  /** its name, such as "rotary-0". */
  run: string;
  /** its name, made visible. */
  scheme: string;
  /** of the run. */
  seed: number;
  /** the most probable tokens, first the answer; none where it cannot answer. */
  top: TokenProbability[];
  /** whether the answer is the correct one; null where the task knows none. */
  correct: boolean | null;
  /** of the correct answer, or null. */
  correct_probability: number | null;
  /** its answer where no position was changed; null where none was, or it has none. */
  usual: TokenProbability | null;
  /** the probability of the correct answer there, or null. */
  usual_correct_probability: number | null;
  /** why it cannot answer, or null. */
  missing: string | null;
}

/** The answers of several runs to one sequence. */
export interface AskedRuns {
  /** of the sequence. */
  tokens: string[];
  /** of the tokens. */
  ids: number[];
  /** the position of each token in the tests of the first of the runs. */
  usual: number[];
  /** the position that each had. */
  positions: number[];
  /** the slot of the token at whose output the models answer; null where that differs among the runs. */
  at: number | null;
  /** the correct answer; null where the task knows none. */
  correct: string | null;
  /** the lengths of training, in tokens. */
  trained: number[];
  /** of the comparison. */
  seeds: number[];
  /** the answers. */
  runs: AskedRun[];
}

/** The heads of a run; `missing` says why there are none, or is null. */
export interface Attention {
  run: string;
  unit: string;
  lengths: AttentionCurves[];
  missing: string | null;
}

/** Mean attention weights by distance at one length; `uniform` those of uniform attention, where recorded. */
export interface AttentionCurves {
  length: number;
  distances: Tensor;
  layers: Tensor;
  uniform: Tensor | null;
}

/** Scores of a predictor that ignores positions. */
export interface Baseline {
  /** of the predictor. */
  name: string;
  /** what it predicts, or "". */
  description: string;
  /** whether a chart has room for it. */
  in_chart: boolean;
  /** its scores by length. */
  values: Tensor;
}

/** Rows behind the last token of the tokenizer. */
export interface BeyondVocabulary {
  /** how many. */
  count: number;
  /** of all. */
  ids: Tensor;
  /** the first rows, with their evidence. */
  examples: TokenRow[];
  /** of these rows; null without. */
  median_norm: number | null;
}

/** A bias that can be shown. */
export interface BiasChoice {
  /** for the settings. */
  name: string;
  /** a short name to read. */
  title: string;
  /** of a scheme of the catalogue; "" for the model's own. */
  formula: string;
  /** its source; "" for the model's own. */
  url: string;
}

/** One bias. */
export interface BiasFindings {
  /** why there is no bias of the open model; null where there is one. */
  missing: string | null;
  /** biases of the open model that cannot be shown. */
  unavailable: UnavailableBias[];
  /** those that can, and the catalogue's. */
  choices: BiasChoice[];
  /** the name of the one that is shown. */
  scheme: string;
  /** the scheme as Python writes it. */
  repr: string;
  /** lines that build it as `scheme`; PATH is the path of what is open. */
  python: string;
  /** name of the learned table of the open model, or null. */
  tensor: string | null;
  /** whether its parameters are random. */
  random: boolean;
  /** controls of its parameters. */
  parameters: Control[];
  /** whether the scheme is for causal attention only. */
  causal: boolean;
  /** how many. */
  heads: number;
  /** that of the matrix. */
  head: number;
  /** the bias of each query and key, or the weight; NaN for keys that the scheme excludes. */
  matrix: Tensor;
  /** distances examined, from 0 on. */
  examined: number;
  /** those of the curves. */
  distances: Tensor;
  /** for earlier keys, by head. */
  past: Tensor;
  /** for later keys; null where they are as for earlier ones, or excluded. */
  later: Tensor | null;
  /** the effective range of each head. */
  ranges: EffectiveRange;
  /** the same for later keys. */
  ranges_later: EffectiveRange | null;
}

/** A scheme of the catalogue. */
export interface CatalogueEntry {
  name: string;
  door: "input" | "query_key" | "score" | null;
  formula: string;
  learned: boolean;
  url: string;
}

/** A character of a token. */
export interface Character {
  /** its code point, such as "U+0041". */
  code: string;
  /** in Unicode. */
  name: string;
  /** in Unicode, such as "Lu". */
  category: string;
}

/** A figure for pages; a terminal prints its table instead. */
export interface Chart {
  /**
   * a histogram has one more x than values: the edges of its bins. Bars are horizontal, one for each row of the table,
   * as long as the first series has it.
   */
  kind: "histogram" | "lines" | "bars";
  /** what it shows. */
  title: string;
  /** the axes, with units. */
  x_label: string;
  /** the axes, with units. */
  y_label: string;
  /** positions on the horizontal axis; of bars its two ends, the first 0. */
  x: number[];
  /** what is drawn above them. */
  series: Series[];
  /** the same numbers to read. */
  table: Table;
  /** one sentence on how to read it, or "". */
  note: string;
  /** how the numbers were computed, or "". */
  method: string;
  /** vertical lines, each a position on the horizontal axis and its label. */
  marks: [number, string][];
  /** whether the horizontal axis is logarithmic. */
  log_x: boolean;
}

/** A control of the page. */
export interface Control {
  /** of the parameter. */
  name: string;
  /** a box, a choice, or a slider for whole or other numbers. */
  kind: "flag" | "choice" | "whole" | "number";
  /** the current one. */
  value: number | boolean | string;
  /** the ends of the slider. */
  low: number;
  /** the ends of the slider. */
  high: number;
  /** of a logarithmic slider; null for a linear one. */
  base: number | null;
  /** of the slider, for each power of the base, or for each 1. */
  steps: number;
  /** the texts that a choice offers. */
  choices: string[];
  /** what the parameter does. */
  help: string;
  /** whether it is folded away. */
  rare: boolean;
}

/** What a scheme costs. */
export interface Cost {
  /** of the whole model. */
  parameters: number;
  /** parameters of the scheme. */
  positions: number;
  /** of a training step. */
  milliseconds: number;
}

/** Curves of a trained scheme by distance. */
export interface CurvesView {
  /** its name. */
  scheme: string;
  /** what the values are. */
  label: string;
  /** of the curves. */
  names: string[];
  /** in tokens. */
  distances: Tensor;
  /** one row for each curve. */
  values: Tensor;
}

/** The difference between the two open checkpoints, A and B. */
export interface DifferenceReport {
  /** the main facts, a sentence without its full stop. */
  headline: string;
  /** the findings on tokens, positions and configuration. */
  sections: Section[];
}

/** The digits along their first principal axis at the end, by step; `r` of each step's own axis. */
export interface DigitLine {
  along: Tensor;
  r: Tensor;
}

/** Numbers of a scheme by distance. */
export interface DistanceCurves {
  /** what they are. */
  label: string;
  /** of the curves. */
  names: string[];
  /** at distance 0, 1, 2, ... */
  values: Tensor;
}

/** The scheme at one door. */
export interface DoorScheme {
  /** where it enters. */
  door: "input" | "query_key" | "score";
  /** its class. */
  name: string;
  /** the scheme as Python writes it, on one line. */
  repr: string;
}

/** Rows that are equal to the last bit. */
export interface Duplicates {
  /** number of groups. */
  groups: number;
  /** number of rows in all groups. */
  rows: number;
  /** of the rows of each group. */
  ids: number[][];
  /** the first rows of the first groups. */
  examples: TokenRow[][];
}

/** The effective range of each head, for scores that consist of the bias alone. */
export interface EffectiveRange {
  /**
   * the first distance from which on every weight is below `share` of the largest one; -1 if there is none among the
   * distances of the bias.
   */
  distance: Tensor;
  /** the same for a share of one half. */
  half: Tensor;
  /** the distance of the largest weight. */
  peak: Tensor;
  /** the mean distance of a key, weighted. */
  mean: Tensor;
}

/** A row with its distance, which may lie far from the others'. */
export interface FarRow {
  /** as the vocabulary spells it, or #id. */
  token: string;
  /** of the token. */
  id: number;
  /** that the token decodes to, with its leading space; null where its bytes are no text, or there is no token. */
  text: string | null;
  /** of the token, such as "word start"; "no token" where the row has none. */
  type: string;
  /** of the row. */
  norm: number;
  /** from the mean of the rows that are not suspicious. */
  distance: number;
  /** what lies far from the others': "low norm", "high norm", "near the mean" by its distance; null where none. */
  why: string | null;
}

/** Rows far from the others by their norm or their distance from the mean, apart from those of one direction. */
export interface FarRows {
  /** how many. */
  count: number;
  /** of all. */
  ids: Tensor;
  /** the first rows, with their evidence. */
  examples: FarRow[];
  /** of the rows that are finite and not 0; null without such rows. */
  median_norm: number | null;
  /** of the rows that are finite and not 0; null without such rows. */
  median_distance: number | null;
  /** the first rows by norm and the last by distance, suspicious or not. */
  lowest: FarRow[];
  /** the first rows by norm and the last by distance, suspicious or not. */
  farthest: FarRow[];
}

/** Numbers of a scheme by position, or by distance. */
export interface Fingerprint {
  /** what the columns are. */
  label: string;
  /** a row for each position. */
  values: Tensor;
}

/** What a trained scheme assigns to positions. */
export interface FingerprintView {
  /** its name. */
  scheme: string;
  /** what one row and one column of the values is. */
  rows: string;
  /** what one row and one column of the values is. */
  columns: string;
  /** what the values are, a sentence. */
  description: string;
  /** the numbers. */
  values: Tensor;
}

/** A run step by step. */
export interface Frames {
  /** its name. */
  run: string;
  /** of its training. */
  steps_of_run: number;
  /** the tokens. */
  words: string[];
  /** steps of the losses. */
  loss_steps: Tensor;
  /** of the batch at each. */
  losses: Tensor;
  /** the token table, or null. */
  frames: TableFrames | null;
  /** why there is no table, or null. */
  missing: string | null;
}

/** The nearest neighbor of each token within a named set, and the cosines within and between its groups. */
export interface GroupNeighbors {
  /** row of the nearest other token of the set, by cosine. */
  nearest: Tensor;
  /** of each token and that neighbor. */
  cosines: Tensor;
  /** number of tokens whose nearest neighbor is of their own group. */
  stay: number;
  /** number of tokens whose group has another token, so that it could be. */
  compared: number;
  /** the least and the greatest cosine of two tokens of one group; null without such a pair. */
  within: [number, number] | null;
  /** likewise, of two tokens of different groups. */
  between: [number, number] | null;
}

/** A row that is among the nearest neighbors of unusually many. */
export interface HubRow {
  /** as the vocabulary spells it, or #id. */
  token: string;
  /** of the token. */
  id: number;
  /** that the token decodes to, with its leading space; null where its bytes are no text, or there is no token. */
  text: string | null;
  /** of the token, such as "word start"; "no token" where the row has none. */
  type: string;
  /** of the row. */
  norm: number;
  /** how often it is among them. */
  times: number;
}

/** Rows that are among the nearest neighbors of unusually many. */
export interface Hubs {
  /** rows whose neighbors were searched. */
  queries: number;
  /** of each. */
  neighbors: number;
  /** how often a row is a neighbor on average. */
  expected: number;
  /** the hubs, most frequent first. */
  rows: HubRow[];
}

/** The nearest rows of a token in the full space. */
export interface MapNeighbors {
  id: number;
  /** nearest first. */
  ids: Tensor;
  /** of each; null on an exported page. */
  cosines: Tensor | null;
}

/** A map of the tokens. */
export interface MapPoints {
  method: "pca" | "tsne" | "umap";
  /** "input" or "output". */
  table: string;
  /** of the tensor. */
  name: string;
  /** of the table. */
  rows: number;
  /** how many of them are on the map. */
  shown: number;
  /** how many have numbers that are not finite, and are on no map. */
  not_finite: number;
  /** the extra to install, by method whose package is not installed. */
  missing: Partial<Record<"pca" | "tsne" | "umap", string>>;
  /** of the map; null where it is not computed yet. */
  quality: MapQuality | null;
  /** of the map; null where it is not computed yet. */
  ids: Tensor | null;
  /** of the map; null where it is not computed yet. */
  coordinates: Tensor | null;
  /** of a named set of tokens; null for a map of the whole table. */
  named: NamedTokens | null;
}

/** How well a map keeps the neighbors of the full space. */
export interface MapQuality {
  /** share of the k nearest rows, by cosine, that are among the k nearest on the map. */
  kept: number;
  /** how many neighbors were compared. */
  k: number;
  /** how many tokens were sampled. */
  sampled: number;
  /** the share that random coordinates would keep. */
  chance: number;
  /** share of the variance along each axis of PCA; null for t-SNE and UMAP. */
  explained: [number, number] | null;
}

/** Tokens that match a search, best first. */
export interface MatchingTokens {
  /** of the tokens. */
  ids: Tensor;
  /** as the vocabulary writes them. */
  words: string[];
  /** the text of each; null where its bytes are no text. */
  texts: (string | null)[];
  /** the token type of each. */
  kinds: string[];
  /** of all that match, of which the first are listed. */
  count: number;
}

/** All that the view of a comparison shows. */
export interface Measurements {
  /** of the comparison. */
  task: TaskView;
  /** names, made visible. */
  schemes: string[];
  /** of the schemes in figures. */
  looks: number[];
  /** of the runs. */
  seeds: number[];
  /** that were tested; the first `trained` of them were trained. */
  lengths: Tensor;
  /** how many of the lengths were trained. */
  trained: number;
  /** median, least and greatest for each scheme. */
  in_length: Tensor;
  /** by group of targets: median, least and greatest, by scheme and length. */
  scores: Record<string, Tensor>;
  /** the score of every run, by scheme, seed and length. */
  each: Tensor;
  /** scores of predictors that ignore positions. */
  baselines: Baseline[];
  /** the scores by layout, in groups, where layers differ or have windows. */
  layouts: Section[];
  /** by how far every position is shifted. */
  shifts: Tensor;
  /** the shift test, by scheme and shift. */
  shift: ShiftTest;
  /** between the schemes in pairs, at the longest length; null where there are none. */
  differences: Table | null;
  /** one for each scheme. */
  costs: Cost[];
  /** its numbers at shares of the steps. */
  token_table: Table | null;
  /** the ten digits, by scheme. */
  number_lines: NumberLineView[];
  /** of the schemes that have one. */
  fingerprints: FingerprintView[];
  /** over distance, of the schemes that have some. */
  curves: CurvesView[];
  /** what the figures show. */
  sentences: Sentences;
  /** what it takes to repeat it. */
  reproduction: Reproduction;
}

/** The reason why a part of some results is not there. */
export interface Missing {
  /** the reason, a sentence without its full stop. */
  missing: string;
}

/** A word that is no token. */
export interface MissingToken {
  /** as it was written. */
  text: string;
  /** such as the pieces that the tokenizer splits it into. */
  reason: string;
}

/** The named tokens of a map, and their nearest neighbors among each other. */
export interface NamedTokens {
  /** the group of each token, as an index of group_names. */
  groups: Tensor;
  /** as they were given, or numbers. */
  group_names: string[];
  /** words that are no token of the table. */
  missing: MissingToken[];
  /** of each token within the set, whose rows are in the order of the map. */
  neighbors: GroupNeighbors;
}

/** The nearest rows of a token, nearest first. */
export interface NeighborList {
  /** of the tokens. */
  ids: Tensor;
  /** as the vocabulary writes them. */
  words: string[];
  /** the text of each; null where its bytes are no text. */
  texts: (string | null)[];
  /** the token type of each. */
  kinds: string[];
  /** "input" or "output". */
  table: string;
  /** of the tensor. */
  name: string;
  /** whether the mean row was subtracted first. */
  centered: boolean;
  /** to the row of the token. */
  cosines: Tensor;
  /** of the rows. */
  norms: Tensor;
  /** of the token and of its first neighbors. */
  rows: Tensor;
}

/** A row with NaN or infinity. */
export interface NotFiniteRow {
  /** as the vocabulary spells it, or #id. */
  token: string;
  /** of the token. */
  id: number;
  /** that the token decodes to, with its leading space; null where its bytes are no text, or there is no token. */
  text: string | null;
  /** of the token, such as "word start"; "no token" where the row has none. */
  type: string;
  /** of the row. */
  norm: number;
  /** how many of its numbers are NaN, and how many infinite. */
  nan: number;
  /** how many of its numbers are NaN, and how many infinite. */
  infinite: number;
}

/** The ten digits along the first principal axis of what training added to their embeddings. */
export interface NumberLineView {
  /** of the run. */
  scheme: string;
  /** coordinates of the digits. */
  along: Tensor;
  /** correlation of digit and coordinate, without its sign. */
  r: number;
}

/** The inspection of what is open. */
export interface Overview {
  /** the main facts, a sentence without its full stop. */
  headline: string;
  /** of the checkpoint. */
  format: string;
  /** the version that inspected it. */
  whatwhere: string;
  /** for row sampling. */
  seed: number;
  /** the findings. */
  sections: Section[];
}

/** Texts in UTF-8, one after the other. */
export interface PackedTexts {
  /** of all texts. */
  bytes: Tensor;
  /** where each text ends in them. */
  ends: Tensor;
}

/** The pairs of one configuration, in their order. */
export interface PairRotations {
  /** an expression that builds the rotary. */
  python: string;
  /** whether the frequencies depend on the length; they are those of the claimed one. */
  follows_length: boolean;
  /** factor of queries and keys. */
  magnitude: number;
  /** the trained length. */
  trained: number;
  /** how many. */
  pairs: number;
  /** radians per position. */
  frequencies: Tensor;
  /** the same without the scaling. */
  unscaled_frequencies: Tensor;
  /** wavelengths and rotations. */
  spectrum: RotarySpectrum;
  /** pairs without a full rotation in the trained length. */
  partial_count: number;
  /** the same in the claimed length. */
  partial_claimed_count: number;
  /** pairs that reach new angles. */
  unseen_count: number;
  /** pairs that never rotate. */
  constant_count: number;
}

/** A passage of text. */
export interface Paragraph {
  text: string;
}

/** Tokens on the plane of two principal components, by step. */
export interface Plane {
  /** coordinates of each token. */
  points: Tensor;
  /** by each component at the end, as a share. */
  variance_explained: Tensor;
}

/** The positions of a scheme. */
export interface PositionFindings {
  /** of the scheme. */
  title: string;
  /** sentences on what differs from the model. */
  notes: string[];
  /** its schemes. */
  doors: DoorScheme[];
  /** the one that is shown; null where no position enters. */
  door: "input" | "query_key" | "score" | null;
  /** positions that are shown. */
  rows: number;
  /** number of positions that a table or a configuration has; null for any number. */
  max_length: number | null;
  /** of the attention. */
  num_heads: number;
  /** lines that build the encoding as `where`; PATH is the path of what is open. */
  python: string;
  /** null where the scheme depends on queries and keys. */
  fingerprint: Fingerprint | null;
  /** null where nothing depends on the distance alone. */
  by_distance: DistanceCurves | null;
  /** null where positions have no vectors. */
  vectors: PositionVectors | Missing | null;
  /** of the pairs of features of a sinusoid, in positions; null for other schemes. */
  wavelengths: Tensor | null;
}

/** How the vectors of positions compare. */
export interface PositionVectors {
  /** positions of which all pairs are compared. */
  compared: Tensor;
  /** of these. */
  cosines: Tensor;
  /** of the vectors. */
  norms: Tensor;
  /** positions unlike the others by norm, distance from the mean row, or cosine to both neighbors. */
  outliers: Tensor;
  /** mean cosine of two positions by their distance. */
  mean_by_distance: Tensor;
  /** share of variance of the next row that one linear map explains; null for few rows. */
  shift: number | null;
  /** the position from which on rows resemble no neighbor, or the number of rows. */
  trained: number;
  /** participation ratio of the variance along principal axes. */
  participation: number;
  /** principal axes that explain 90 % of the variance; null where that is not known. */
  axes_for_90: number | null;
  /** coordinates along the principal axes. */
  path: Tensor;
  /** by each of these axes, as a share. */
  variance_explained: Tensor;
}

/** What is needed to repeat the comparison. */
export interface Reproduction {
  /** null where no command line can express it. */
  command: string | null;
  /** settings, machine and versions. */
  settings: Table;
  /** one row for each run. */
  runs: Table;
}

/** Cosines by distance between vectors that are rotated by one rotary and by another. */
export interface RotaryAgreement {
  /** of the two configurations; null where their pairs differ in number. */
  between: Tensor | null;
  /** of each with itself unscaled; null where it cannot be built. */
  a: Tensor | null;
  /** of each with itself unscaled; null where it cannot be built. */
  b: Tensor | null;
}

/** One of the two configurations. */
export interface RotaryConfiguration {
  /** the name of what it begins with. */
  preset: string;
  /** of that. */
  title: string;
  /** how its lengths are known; "" for a plain rotary. */
  lengths: string;
  /** the name of its scaling, or "none". */
  scaling: string;
  /** their controls. */
  parameters: Control[];
  /** whether the factors of each pair are the model's own. */
  own_lists: boolean;
  /** why it cannot be built, or null. */
  problem: string | null;
  /** of its pairs; null where it cannot be built. */
  rotations: PairRotations | null;
}

/** Two configurations of rotary. */
export interface RotaryLab {
  /** why the open model has none; null where it has one. */
  missing: string | null;
  /** what a configuration can begin with. */
  presets: RotaryPreset[];
  /** of the catalogue. */
  scalings: ScalingEntry[];
  /** the length of the text. */
  claimed: number;
  /** the two configurations. */
  sides: [RotaryConfiguration, RotaryConfiguration];
  /** those of the cosines. */
  distances: Tensor;
  /** how far they agree. */
  cosines: RotaryAgreement;
}

/** The pairs of features that are rotated. */
export interface RotaryPairs {
  /** the features of each pair. */
  first: Tensor;
  /** the features of each pair. */
  second: Tensor;
  /** radians per position. */
  frequencies: Tensor;
}

/** A rotary that a configuration can begin with. */
export interface RotaryPreset {
  /** in settings, as in "from=plain". */
  name: string;
  /** a short name to read. */
  title: string;
}

/** Wavelengths and rotations of rotary pairs, in their order. */
export interface RotarySpectrum {
  /** positions for one rotation, 2 pi / w; infinite for a frequency of 0. */
  wavelengths: Tensor;
  /** the same without the scaling. */
  unscaled: Tensor;
  /** unscaled frequency divided by the scaled one; infinite if the scaled one is 0. */
  slowdown: Tensor;
  /** rotations within the trained length, at the frequencies of training. */
  rotations_trained: Tensor;
  /** rotations within the claimed length, at the frequencies used there. */
  rotations_claimed: Tensor;
  /** pairs without a full rotation in training, for which larger angles are out of distribution. */
  partial: Tensor;
  /**
   * pairs whose angles within the claimed length exceed those of training: those of `partial` that rotate farther than
   * in training.
   */
  unseen: Tensor;
  /** pairs of frequency 0, which never rotate. */
  constant: Tensor;
}

/** A group of rows in a histogram. */
export interface RowGroup {
  name: string;
  /** of its rows, by bin. */
  counts: Tensor;
}

/** A histogram of all rows and of the suspicious ones. */
export interface RowHistogram {
  /** of the bins. */
  edges: Tensor;
  /** which overlap. */
  groups: RowGroup[];
}

/** The row of a token in one table, and the histogram of the norms of all rows. */
export interface RowInTable {
  /** of the tensor. */
  name: string;
  /** as it is stored. */
  dtype: string;
  /** of the table. */
  rows: number;
  /** the histogram of the norms. */
  counts: Tensor;
  /** the histogram of the norms. */
  edges: Tensor;
  /** of the norms. */
  median: number;
  /** whether the row has numbers that are not finite. */
  broken: boolean;
  /** of the row. */
  norm: number | null;
  /** how many of 100 rows have a lower norm. */
  percentile: number | null;
  /** its numbers. */
  row: Tensor | null;
}

/** Suspicious rows of one cause. */
export interface RowListOfNotFiniteRow {
  /** how many. */
  count: number;
  /** of all. */
  ids: Tensor;
  /** the first rows, with their evidence. */
  examples: NotFiniteRow[];
}

/** Suspicious rows of one cause. */
export interface RowListOfTokenRow {
  /** how many. */
  count: number;
  /** of all. */
  ids: Tensor;
  /** the first rows, with their evidence. */
  examples: TokenRow[];
}

/** Suspicious rows of one cause. */
export interface RowListOfUnmovedRow {
  /** how many. */
  count: number;
  /** of all. */
  ids: Tensor;
  /** the first rows, with their evidence. */
  examples: UnmovedRow[];
}

/** Suspicious rows of one cause. */
export interface RowListOfUnreachableRow {
  /** how many. */
  count: number;
  /** of all. */
  ids: Tensor;
  /** the first rows, with their evidence. */
  examples: UnreachableRow[];
}

/** A RoPE scaling of the catalogue. */
export interface ScalingEntry {
  name: string;
  formula: string;
  paper: string;
  url: string;
  used_by: string[];
}

/** The schemes that a view offers. */
export interface SchemeList {
  /** the entries of the catalogue. */
  schemes: CatalogueEntry[];
  /** of a comparison, such as "rotary-0". */
  runs: string[];
}

/** A titled part of a report. */
export interface Section {
  /** a short name, for links and options. */
  name: string;
  /** the heading. */
  title: string;
  /** paragraphs, tables and charts, in the order of reading. */
  parts: (Paragraph | Table | Chart)[];
}

/** One sentence or two for each part of the view. */
export interface Sentences {
  /** which scheme has the best median, and which differences the seeds show. */
  answer: string;
  /** what was not tested. */
  scope: string;
  /** how differences were tested, or "". */
  differences: string;
  /** what was compared. */
  question: string;
  /** what the figures and tables show. */
  scores: string;
  /** what the figures and tables show. */
  groups: string;
  /** what the figures and tables show. */
  shift: string;
  /** what the figures and tables show. */
  table: string;
  /** what the figures and tables show. */
  doors: string;
  /** what the figures and tables show. */
  distance: string;
  /** what the runs started from, how long they took, and where. */
  record: string;
  /** how to repeat them. */
  repeat: string;
}

/** One line or one set of bars of a chart. */
export interface Series {
  /** what the legend calls it; of horizontal bars, the column of the table that holds the same numbers as text. */
  name: string;
  /** NaN where there is none. */
  values: (number | null)[];
  /** of the scheme that it shows (report/scheme_looks.py); null where it shows none. */
  look: number | null;
}

/** Scores and logits where every position is shifted. */
export interface ShiftTest {
  /** of shifted inputs. */
  score: Tensor;
  /** the greatest |shifted logit - unshifted logit|. */
  largest_logit_change: Tensor;
}

/** The suspicious rows of a token table, and histograms of the numbers by which they were chosen. */
export interface SuspiciousTokens {
  /** of the tensor. */
  name: string;
  /** the rows, of which the first 5,000 of each list are described. */
  found: TokenDiagnostics;
  /** what was measured where no row is suspected of being under-trained; else "". */
  none_suspected: string;
  /** of the rows that are finite and not zero; the others have lists of their own. */
  norms: RowHistogram;
  /** of the rows that are finite and not zero; the others have lists of their own. */
  cosines: RowHistogram;
}

/** A table of text. */
export interface Table {
  /** what it shows. */
  caption: string;
  /** their headings. */
  columns: string[];
  /** the cells; the first of each row names the row. */
  rows: string[][];
  /** the columns that hold numbers, counted from 0; they are aligned to the right. */
  numeric: number[];
  /** how many rows there are, where not all are listed; null where all are. */
  total: number | null;
  /** shares from 0 to 1 that a terminal draws beside the rows. */
  bars: number[] | null;
  /** which rows a terminal prints where there are many: the first, some from end to end, or all. */
  shorten: "first" | "evenly" | "never";
}

/** The token table by step. */
export interface TableFrames {
  /** at which it was recorded. */
  steps: Tensor;
  /** the table at each. */
  tables: Tensor;
  /** of the "table" E, and of its "change" E - E0. */
  planes: Partial<Record<"table" | "change", Plane>>;
  /** of each row. */
  norms: Tensor;
  /** of the expressions' digits, or null. */
  line: DigitLine | null;
}

/** A token table as the header of its file describes it. */
export interface TableHeader {
  /** of the tensor. */
  name: string;
  /** its shape. */
  rows: number;
  /** its shape. */
  dim: number;
  /** the stored type. */
  dtype: string;
}

/** The task of a comparison. */
export interface TaskView {
  /** of the task. */
  name: string;
  /** what lengths count. */
  unit: string;
  /** lengths of training. */
  trained: number[];
  /** the same as text. */
  trained_text: string;
  /** "accuracy", or a loss. */
  measure: string;
  /** the measure with its unit and its better side. */
  scored: string;
  /** whether scores are shares, to be shown in percent. */
  percent: boolean;
  /** "all", then the groups of targets that are scored by themselves. */
  groups: string[];
  /** length of the shift test. */
  shift_length: number;
}

/** The first tokens of a text. */
export interface TextTokens {
  /** number of tokens of the whole text. */
  count: number;
  /** of the tokens that are shown. */
  ids: Tensor;
  /** the tokens, as the vocabulary writes them. */
  words: string[];
  /** the text of each; null where its bytes are no text. */
  texts: (string | null)[];
  /** the type of each: word, special, number ... */
  kinds: string[];
}

/** Each step of a text from tokens to attention scores. */
export interface TextWalkthrough {
  /** number of tokens of the whole text. */
  count: number;
  /** of the tokens that are shown. */
  ids: Tensor;
  /** the tokens, as the vocabulary writes them. */
  words: string[];
  /** the text of each; null where its bytes are no text. */
  texts: (string | null)[];
  /** the type of each: word, special, number ... */
  kinds: string[];
  /** name of the token table; null where its rows are random. */
  tensor: string | null;
  /** by which the model multiplies the rows. */
  factor: number;
  /** of the positional encoding. */
  title: string;
  /** its schemes. */
  doors: DoorScheme[];
  /** sentences on what differs from the model. */
  notes: string[];
  /** of the layer. */
  dim: number;
  /** of the layer. */
  num_heads: number;
  /** of the layer. */
  head_dim: number;
  /** the row of each token, times the factor. */
  rows: Tensor;
  /** the vector added at each position; null without an input encoding. */
  position_rows: Tensor | null;
  /** their sum, the input of the first block. */
  vectors: Tensor;
  /** by which queries and keys are rotated, in radians; null without a rotary. */
  angles: Tensor | null;
  /** of the numbers that follow. */
  head: number;
  /** the softmax scale. */
  scale: number;
  /** whether later keys are masked. */
  causal: boolean;
  /** the query of each token, which is its key too. */
  q: Tensor;
  /** as the scheme of queries and keys maps them. */
  mapped_q: Tensor;
  /** as the scheme of queries and keys maps them. */
  mapped_k: Tensor;
  /** dot products of queries and keys before that, times the scale. */
  products: Tensor;
  /** the same after it. */
  mapped_products: Tensor;
  /** added to the scores; null without a score scheme. */
  bias: Tensor | null;
  /** the attention scores. */
  scores: Tensor;
  /** of features that are rotated; null without a rotary. */
  pairs: RotaryPairs | null;
  /** of random numbers. */
  seed: number;
  /** lines that build the encoding as `where`; PATH is the path of what is open. */
  python: string;
}

/** What a token is. */
export interface TokenCard {
  id: number;
  /** as the vocabulary writes it. */
  word: string;
  /** null where its bytes are no text. */
  text: string | null;
  /** its token type. */
  kind: string;
  /** of its characters; null where it has no text. */
  script: string | null;
  /** of its text, the first 256. */
  bytes: Tensor;
  /** of all. */
  byte_count: number;
  /** of its text, the first 64. */
  characters: Character[];
  /** whether a text is encoded to it; null without a tokenizer. */
  reachable: boolean | null;
  /** its rows, by table. */
  tables: Partial<Record<"input" | "output", RowInTable>>;
}

/** The suspicious rows of a token table. */
export interface TokenDiagnostics {
  /** of the table. */
  rows: number;
  /** the lists. */
  under_trained: UnderTrained;
  /** the lists. */
  far: FarRows;
  /** the lists. */
  unreachable: RowListOfUnreachableRow | Missing;
  /** the lists. */
  duplicates: Duplicates;
  /** the lists. */
  hubs: Hubs;
  /** the lists. */
  zero: RowListOfTokenRow;
  /** the lists. */
  not_finite: RowListOfNotFiniteRow;
  /** the lists. */
  beyond_vocabulary: BeyondVocabulary | Missing;
  /**
   * rows that training did not move, but for weight decay; null where the table before training is not stored, as it is
   * in runs of a comparison.
   */
  unmoved: RowListOfUnmovedRow | null;
}

/** How often each token occurs in the corpus. */
export interface TokenFrequencies {
  /** its name; null where there is none. */
  corpus: string | null;
  /** whether all of it was read. */
  whole: boolean;
  /** by id. */
  counts: Tensor | null;
  /** of all counts. */
  total: number;
}

/** How each row of a table is named and colored. */
export interface TokenLabels {
  /** as the vocabulary writes them. */
  words: PackedTexts;
  /** empty where the text is the word. */
  texts: PackedTexts;
  /** the token type of each row, as an index of kind_names. */
  kinds: Tensor;
  kind_names: string[];
  /** likewise, of script_names. */
  scripts: Tensor;
  script_names: string[];
  /** NaN for a row that is not finite. */
  norms: Tensor;
}

/** The nearest rows of a token in each table. */
export interface TokenNeighbors {
  id: number;
  /** the token as the vocabulary writes it. */
  word: string;
  /** null where its bytes are no text. */
  text: string | null;
  /** the norm of the mean row of each table. */
  mean: Partial<Record<"input" | "output", number>>;
  /** of each table, as it is and centered. */
  lists: NeighborList[];
}

/** A token, and the probability that a model gives it. */
export interface TokenProbability {
  token: string;
  id: number;
  probability: number;
}

/** A row of the token table. */
export interface TokenRow {
  /** as the vocabulary spells it, or #id. */
  token: string;
  /** of the token. */
  id: number;
  /** that the token decodes to, with its leading space; null where its bytes are no text, or there is no token. */
  text: string | null;
  /** of the token, such as "word start"; "no token" where the row has none. */
  type: string;
  /** of the row. */
  norm: number;
}

/** A bias of the open model that cannot be shown. */
export interface UnavailableBias {
  /** a short name to read. */
  title: string;
  /** why, a sentence without its full stop. */
  missing: string;
}

/** Rows suspected of being under-trained, by their cosine to the mean of the rows of lowest norm; the highest first. */
export interface UnderTrained {
  /** how many. */
  count: number;
  /** of all. */
  ids: Tensor;
  /** the first rows, with their evidence. */
  examples: UnderTrainedRow[];
  /** ids of the rows of lowest norm. */
  reference: Tensor;
  /** of the cosine, above which a row is suspected. */
  threshold: number;
  /** whether any cosine could exceed the threshold. */
  decisive: boolean;
  /** the largest cosine; null without reference rows. */
  highest: number | null;
  /** how many of them no text is encoded to; null without a tokenizer. */
  also_unreachable: number | null;
}

/** A row that is suspected of being under-trained. */
export interface UnderTrainedRow {
  /** as the vocabulary spells it, or #id. */
  token: string;
  /** of the token. */
  id: number;
  /** that the token decodes to, with its leading space; null where its bytes are no text, or there is no token. */
  text: string | null;
  /** of the token, such as "word start"; "no token" where the row has none. */
  type: string;
  /** of the row. */
  norm: number;
  /** to the mean of the reference rows, both less the mean of all rows. */
  cosine: number;
  /** 1 - distance to that mean / median distance. */
  proximity: number;
  /** whether some text is encoded to this token; null without a tokenizer. */
  reachable: boolean | null;
}

/** A row that training did not move, but for a factor. */
export interface UnmovedRow {
  /** as the vocabulary spells it, or #id. */
  token: string;
  /** of the token. */
  id: number;
  /** that the token decodes to, with its leading space; null where its bytes are no text, or there is no token. */
  text: string | null;
  /** of the token, such as "word start"; "no token" where the row has none. */
  type: string;
  /** of the row. */
  norm: number;
  /** by which weight decay shrank it: norm now / norm before. */
  factor: number;
}

/** A row whose token no text is encoded to. */
export interface UnreachableRow {
  /** as the vocabulary spells it, or #id. */
  token: string;
  /** of the token. */
  id: number;
  /** that the token decodes to, with its leading space; null where its bytes are no text, or there is no token. */
  text: string | null;
  /** of the token, such as "word start"; "no token" where the row has none. */
  type: string;
  /** of the row. */
  norm: number;
  /** the text that was encoded again. */
  tried: string;
  /** the first tokens that this text is encoded to. */
  read_as: string[];
}
