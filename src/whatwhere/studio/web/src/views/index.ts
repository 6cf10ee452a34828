/** The page of each view, by its name in the address, and the settings that it begins with. */

import type { ComponentType } from "preact";
import type { Settings } from "../source";
import type { About, View as ViewTitle } from "../types";
import { Tokens, defaults as tokenDefaults } from "./tokens";
import { Rotary } from "./rotary";
import { Pipeline } from "./pipeline";
import { Positions } from "./positions";
import { TokenMap, defaults as mapDefaults } from "./map";
import { Biases } from "./biases";
import { AttentionByDistance, Compare, Diagnostics, Overview } from "./findings";
import { Replay, END } from "./replay";
import { Ask } from "./ask";
import { Training } from "./training";

export interface View extends ViewTitle {
  id: string;
  defaults(about: About): Settings;
  Page: ComponentType;
}

const PAGES: Record<string, Pick<View, "Page" | "defaults">> = {
  tokens: { Page: Tokens, defaults: tokenDefaults },
  rotary: { Page: Rotary, defaults: () => ({ a: "", b: "", claimed: 0 }) },
  pipeline: {
    Page: Pipeline,
    defaults: (about) => ({ ...about.begin["pipeline"], step: "sum", at: 2, other: 1, pair: 0 }),
  },
  positions: {
    Page: Positions,
    defaults: (about) => ({ ...about.begin["positions"], axes: "1,2", column: 4, log: false }),
  },
  map: { Page: TokenMap, defaults: mapDefaults },
  biases: {
    Page: Biases,
    defaults: () => ({
      ...{ scheme: "", options: "", heads: 8, head: 0, tokens: 64 },
      ...{ weights: false, share: "0.01", seed: 0, log: true, all: false },
    }),
  },
  diagnostics: { Page: Diagnostics, defaults: () => ({ list: "" }) },
  compare: { Page: Compare, defaults: () => ({ table: "input", k: 10 }) },
  training: { Page: Training, defaults: () => ({ log: true, each: false, held: false }) },
  replay: { Page: Replay, defaults: () => ({ at: END, of: "change" }) },
  attention: { Page: AttentionByDistance, defaults: () => ({}) },
  ask: {
    Page: Ask,
    defaults: (about) => ({ text: "", seeds: "median", positions: "", shown: "", ...about.begin["ask"] }),
  },
  overview: { Page: Overview, defaults: () => ({ section: "" }) },
};

export function views(about: About): View[] {
  return Object.entries(about.views).map(([id, view]) => ({ id, ...view, ...PAGES[id]! }));
}
