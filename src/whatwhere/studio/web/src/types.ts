/** The studio's answers. Written by page_types.py from the dataclasses of whatwhere/studio/api: do not edit. */

import type { Tensor } from "./wire";

/** Types of answers, by the name of the query or job. */
export interface Answers {
  "about": About;
  "compare.results": Measurements;
  "replay.runs": Runs;
  "replay.frames": Frames;
  "replay.attention": Attention;
  "overview.inspected": Overview;
  "compare.difference": Difference;
  "replay.train": Trained;
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
  tables: Partial<Record<"input" | "readout", TableHeader>>;
  /** whether both are the same; null where that is unknown. */
  tied: boolean | null;
  /** whether the token table was chosen by its size, for no name is known. */
  guessed: boolean;
  /** the shape of the position table. */
  positions: number[] | null;
  /** the settings that some views begin with, by the names of the views. */
  begin: Record<string, Record<string, string | number | boolean>>;
  /** whether the file itself describes positions, by a configuration or a table. */
  own: boolean;
  /** of a comparison, such as "rotary-0". */
  runs: string[];
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
  /** in an exported page the views that it holds; null elsewhere. */
  exported: string[] | null;
  /** in an exported page the view that it opens on. */
  first: string | null;
}

/** The heads of a run; `missing` says why there are none, or is null. */
export interface Attention {
  run: string;
  unit: string;
  lengths: AttentionCurves[];
  missing: string | null;
}

/** Mean attention weights by distance at one length; `even` is uniform attention, where it was recorded. */
export interface AttentionCurves {
  length: number;
  distances: Tensor;
  layers: Tensor;
  even: Tensor | null;
}

/** Scores of a predictor that ignores positions; `drawn` where a chart has room for it. */
export interface Baseline {
  name: string;
  description: string;
  drawn: boolean;
  values: Tensor;
}

/** A setting that differs. */
export interface ChangedValue {
  /** of the setting; nested keys are joined by dots. */
  name: string;
  /** its values; null where there is none. */
  first: string | number | boolean | null;
  /** its values; null where there is none. */
  second: string | number | boolean | null;
}

/** A figure for pages; a terminal prints its table instead. */
export interface Chart {
  /** a histogram has one more x than values: the edges of its bins. */
  kind: "histogram" | "lines";
  /** what it shows. */
  title: string;
  /** the axes, with units. */
  x_label: string;
  /** the axes, with units. */
  y_label: string;
  /** positions on the horizontal axis. */
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
}

/** One of two tables that are compared. */
export interface ComparedTable {
  /** of the tensor. */
  name: string;
  /** the stored type. */
  dtype: string;
  /** its shape. */
  rows: number;
  /** its shape. */
  dim: number;
  /** the rows that are ignored, for they hold NaN or infinity. */
  not_finite: string[];
}

/** The difference between two configurations. */
export interface ConfigurationDifference {
  /** that differ, where both are Hugging Face's own. */
  keys: ChangedValue[];
  /** that differ in this library's terms, where no key has the same name and values. */
  facts: ChangedValue[];
  /** layers whose maps of queries and keys differ. */
  query_key: LayerDifference[];
  /** layers whose biases differ. */
  score: LayerDifference[];
  /** why keys alone are compared; null where both are understood. */
  not_understood: string | null;
}

/** Parameters of a scheme's model, those of its positions, and milliseconds a training step. */
export interface Cost {
  parameters: number;
  positions: number;
  milliseconds: number;
}

/** Curves of a trained scheme over distance. */
export interface CurvesView {
  scheme: string;
  label: string;
  names: string[];
  distances: Tensor;
  values: Tensor;
}

/** The difference between two checkpoints. */
export interface Difference {
  /** what was compared. */
  first: Side;
  /** what was compared. */
  second: Side;
  /** of the token tables. */
  tokens: TokensDifference | Missing;
  /** of the position tables. */
  positions: PositionsDifference | Missing;
  /** of the configurations. */
  configuration: ConfigurationDifference | Missing;
}

/** The digits along their first principal axis at the end, by step; `r` of each step's own axis. */
export interface DigitLine {
  along: Tensor;
  r: Tensor;
}

/** What a trained scheme assigns to positions: what rows, columns and numbers are, and the numbers. */
export interface FingerprintView {
  scheme: string;
  rows: string;
  columns: string;
  description: string;
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

/** A token, and the share of its nearest neighbors that is the same in both tables. */
export interface KeptNeighbors {
  /** its text. */
  token: string;
  /** the share. */
  kept: number;
}

/** The schemes of some layers, which differ. */
export interface LayerDifference {
  /** their numbers. */
  layers: number[];
  /** the schemes as code; null for none. */
  first: string | null;
  /** the schemes as code; null for none. */
  second: string | null;
  /** the comparison, where both are rotary with as many pairs. */
  rotary: RotaryDifference | null;
}

/** The digits along the first principal axis of what training wrote into them. */
export interface Line {
  scheme: string;
  along: Tensor;
  r: number;
}

/** All that the view of a comparison shows. */
export interface Measurements {
  /** of the comparison. */
  task: TaskView;
  /** names, made visible. */
  schemes: string[];
  /** of the runs. */
  seeds: number[];
  /** that were tested; the first `trained` of them were trained. */
  lengths: Tensor;
  /** how many of the lengths were trained. */
  trained: number;
  /** median, least and greatest for each scheme. */
  in_length: Tensor;
  /** by group: median, least and greatest; NaN where a scheme has no row. */
  scores: Record<string, Tensor>;
  /** the score of every run, by scheme, seed and length. */
  each: Tensor;
  /** scores of predictors that ignore positions. */
  baselines: Baseline[];
  /** of the shift test. */
  shifts: Tensor;
  /** "score" and "largest_logit_change": median, least and greatest. */
  shift: Record<string, Tensor>;
  /** one for each scheme. */
  costs: Cost[];
  /** the token table beside the tutorial's numbers, or null. */
  story: TextTable | null;
  /** the digits on a line, by scheme. */
  lines: Line[];
  /** of the schemes that have one. */
  fingerprints: FingerprintView[];
  /** over distance, of the schemes that have some. */
  curves: CurvesView[];
  /** on the tutorial's claims. */
  verdicts: VerdictView[];
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

/** A row that differs. */
export interface MovedRow {
  /** or position. */
  token: string;
  /** of the row in both tables. */
  ids: [number, number];
  /** between the two rows, in units of the median norm of the first table's. */
  distance: number;
  /** of the two. */
  cosine: number;
  /** norm of the second / norm of the first; NaN where the first is 0. */
  norm_ratio: number | null;
}

/** The difference between the nearest neighbors of tokens. */
export interface NeighborsDifference {
  /** neighbors of each. */
  k: number;
  /** tokens that were sampled. */
  queries: number;
  /** mean share of neighbors that are the same. */
  kept: number;
  /** the share that random neighbors would keep. */
  chance: number;
  /** the tokens whose neighbors changed most. */
  least_kept: KeptNeighbors[];
}

/** The inspection as the page shows it. */
export interface Overview {
  /** the main facts in one sentence, without its full stop. */
  headline: string;
  /** of the checkpoint. */
  format: string;
  /** the version that made this. */
  whatwhere: string;
  /** random seed of samples of rows. */
  seed: number;
  /** the findings. */
  sections: Section[];
}

/** A passage of text. */
export interface Paragraph {
  text: string;
}

/** Tokens on the plane of two principal components, by step; `share` of the variance at the end, by component. */
export interface Plane {
  places: Tensor;
  share: Tensor;
}

/** The difference between two position tables. */
export interface PositionsDifference {
  /** both. */
  tables: [ComparedTable, ComparedTable];
  /** the row that position 0 reads, in both. */
  offsets: [number, number];
  /** positions of both. */
  shared: number;
  /** how many positions one of them alone has. */
  removed: number;
  /** how many positions one of them alone has. */
  new: number;
  /** matched position by position. */
  rows: RowsDifference | Missing;
}

/** What it takes to repeat the comparison; `command` is null where no command line can. */
export interface Reproduction {
  command: string | null;
  settings: string[][];
  runs: TextTable;
}

/** Two rotary embeddings compared. */
export interface RotaryDifference {
  /** rotated pairs of features. */
  pairs: number;
  /** pairs whose frequencies differ. */
  differing: number;
  /** that the frequencies hold for, where they follow the length. */
  length: number;
  /** of both, radians per position. */
  frequencies: [Tensor, Tensor];
  /** of the frequencies, second / first; NaN where the first is 0. */
  ratio: Tensor;
  /** factors of queries and keys. */
  magnitudes: [number, number];
  /** how features are paired, as in `Rotary`. */
  interleaved: [boolean, boolean];
  /** between two tokens. */
  distances: number[];
  /** of a vector rotated by the one and by the other, at each distance. */
  cosine: number[];
}

/** The difference that is left once the first table is rotated onto the second as well as a rotation can. */
export interface RotatedDifference {
  /** rows whose numbers are all the same. */
  equal: number;
  /** sqrt(sum |y - x|^2 / sum |x|^2); NaN where all x are 0. */
  relative_error: number | null;
  /** of matched rows, as in `MovedRow`. */
  cosine: Summary;
  /** of matched rows, as in `MovedRow`. */
  distance: Summary;
  /** of matched rows, as in `MovedRow`. */
  norm_ratio: Summary;
  /** the rows of greatest distance. */
  moved_most: MovedRow[];
  /** rows that the rotation was fitted to. */
  fitted: number;
  /** median cosine of the other rows. */
  held_out_cosine: number;
}

/** The difference between matched rows. */
export interface RowsDifference {
  /** rows whose numbers are all the same. */
  equal: number;
  /** sqrt(sum |y - x|^2 / sum |x|^2); NaN where all x are 0. */
  relative_error: number | null;
  /** of matched rows, as in `MovedRow`. */
  cosine: Summary;
  /** of matched rows, as in `MovedRow`. */
  distance: Summary;
  /** of matched rows, as in `MovedRow`. */
  norm_ratio: Summary;
  /** the rows of greatest distance. */
  moved_most: MovedRow[];
}

/** A run that can be watched; `traced` where it recorded the steps between the first and the last. */
export interface RunName {
  name: string;
  scheme: string;
  seed: number;
  traced: boolean;
}

/** Runs of the folder, and the schemes and steps that can be trained here. */
export interface Runs {
  runs: RunName[];
  schemes: string[];
  steps: number[];
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

/** What the figures show, in sentences. */
export interface Sentences {
  answer: string;
  question: string;
  scores: string;
  groups: string;
  shift: string;
  table: string;
  doors: string;
  distance: string;
  verdicts: string;
  record: string;
  repeat: string;
}

/** One line or one set of bars of a chart. */
export interface Series {
  /** what the legend calls it. */
  name: string;
  /** NaN where there is none. */
  values: (number | null)[];
}

/** One of the two that are compared. */
export interface Side {
  /** of the file or folder. */
  path: string;
  /** of the checkpoint; "configuration" for a configuration alone. */
  format: string;
}

/** A summary of some numbers; NaN where there are none. */
export interface Summary {
  /** of the numbers. */
  min: number | null;
  /** of the numbers. */
  median: number | null;
  /** of the numbers. */
  mean: number | null;
  /** of the numbers. */
  max: number | null;
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
  planes: Record<string, Plane>;
  /** the norm of each row. */
  lengths: Tensor;
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

/** The task; `scored` is its measure with unit and better side, `groups` begins with "all". */
export interface TaskView {
  name: string;
  unit: string;
  trained: number[];
  trained_text: string;
  measure: string;
  scored: string;
  percent: boolean;
  higher: boolean;
  groups: string[];
  shift_length: number;
}

/** A table whose cells are text. */
export interface TextTable {
  caption: string;
  head: string[];
  rows: string[][];
}

/** The difference between two token tables. */
export interface TokensDifference {
  /** "text", or "id" where one of the two has no tokens. */
  matched_by: string;
  /** both. */
  tables: [ComparedTable, ComparedTable];
  /** tokens of both. */
  shared: number;
  /** tokens of the first alone. */
  removed_count: number;
  /** tokens of the first alone. */
  removed: string[];
  /** tokens of the second alone. */
  new_count: number;
  /** tokens of the second alone. */
  new: string[];
  /** matched row by row. */
  rows: RowsDifference | Missing;
  /** the same after a rotation. */
  rotated: RotatedDifference | Missing;
  /** of the matched tokens. */
  neighbors: NeighborsDifference | Missing;
}

/** A run that was trained here, with its score at each length. */
export interface Trained {
  frames: Frames;
  attention: Attention;
  lengths: Tensor;
  scores: Tensor;
}

/** A claim of the tutorial and its verdict, in the words of the report. */
export interface VerdictView {
  claim: string;
  tutorial: string;
  measured: string;
  verdict: string;
  reason: string;
  precondition: string;
}
