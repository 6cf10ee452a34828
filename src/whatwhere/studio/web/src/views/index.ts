/** All views: how each is named in the address and to readers, what it answers, and the settings that it begins with. */

import type { ComponentType } from "preact";
import type { Settings } from "../source";
import type { About } from "../types";
import { Tokens, defaults as tokenDefaults } from "./tokens";
import { Rotary } from "./rotary";
import { Pipeline } from "./pipeline";
import { Positions } from "./positions";
import { TokenMap, defaults as mapDefaults } from "./map";
import { Biases } from "./biases";
import { Diagnostics } from "./diagnostics";
import { Compare } from "./compare";
import { Replay, END } from "./replay";
import { AttentionByDistance } from "./attention";
import { Ask } from "./ask";
import { Overview } from "./overview";

export interface View {
  id: string;
  title: string;
  question: string;
  defaults(about: About): Settings;
  /** Whether it looks at one run of a comparison. */
  byRun?: boolean;
  Page: ComponentType;
}

const VIEWS: View[] = [
  {
    id: "tokens",
    title: "Token card",
    question: "What is a token, what is the norm of its vector, and which tokens are near it in the full space?",
    defaults: tokenDefaults,
    byRun: true,
    Page: Tokens,
  },
  {
    id: "rotary",
    title: "Rotary lab",
    question:
      "How many rotations does each pair make within the trained and the claimed length, and what does a scaling change?",
    defaults: () => ({ a: "", b: "", claimed: 0 }),
    Page: Rotary,
  },
  {
    id: "pipeline",
    title: "Pipeline",
    question: "How does a text become vectors and attention scores: its tokens, ids and rows, and its positions?",
    defaults: (about) => ({ ...about.begin["pipeline"], step: "tokens", at: 2, other: 1, pair: 0 }),
    byRun: true,
    Page: Pipeline,
  },
  {
    id: "positions",
    title: "Positions",
    question: "What is the vector or bias of each position, which positions are similar, and what path do they take?",
    defaults: (about) => ({ ...about.begin["positions"], axes: "1,2", column: 4, log: false }),
    byRun: true,
    Page: Positions,
  },
  {
    id: "map",
    title: "Token map",
    question: "How are all tokens arranged, and how much of that does a map in two dimensions keep?",
    defaults: mapDefaults,
    byRun: true,
    Page: TokenMap,
  },
  {
    id: "biases",
    title: "Biases",
    question: "What do positions add to the attention scores, and what is the effective range of each head?",
    defaults: () => ({
      ...{ scheme: "", options: "", heads: 8, head: 0, tokens: 64 },
      ...{ weights: false, share: "0.01", seed: 0, log: true, all: false },
    }),
    Page: Biases,
  },
  {
    id: "diagnostics",
    title: "Diagnostics",
    question:
      "Which tokens look under-trained, which are unreachable by any text, and which rows of the table are faulty?",
    defaults: () => ({ list: "" }),
    byRun: true,
    Page: Diagnostics,
  },
  {
    id: "compare",
    title: "Compare",
    question: "Which positional encoding holds beyond the trained length, and what differs between two checkpoints?",
    defaults: () => ({ group: "all", log: false, table: "input", k: 10 }),
    Page: Compare,
  },
  {
    id: "replay",
    title: "Training replay",
    question: "How does training change the token table and the loss, step by step?",
    defaults: () => ({ at: END, of: "change" }),
    byRun: true,
    Page: Replay,
  },
  {
    id: "attention",
    title: "Attention by distance",
    question: "How much attention does each head of a trained model pay to tokens at each distance?",
    defaults: () => ({ log: false }),
    byRun: true,
    Page: AttentionByDistance,
  },
  {
    id: "ask",
    title: "Ask",
    question:
      "What do the trained models answer to a question, what does each head attend to, and do positions matter?",
    defaults: (about) => ({ text: "", seeds: "median", positions: "", ...about.begin["ask"] }),
    byRun: true,
    Page: Ask,
  },
  {
    id: "overview",
    title: "Overview",
    question: "What are the tokens of this file, and how does the model encode positions?",
    defaults: () => ({ section: "" }),
    byRun: true,
    Page: Overview,
  },
];

export function views(about: About): View[] {
  return about.views.flatMap((name) => VIEWS.find(({ id }) => id === name) ?? []);
}
