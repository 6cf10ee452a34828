/** The views, each of which registers itself when its file is imported; views/index.ts imports them. */

import type { ComponentType } from "preact";
import type { Settings } from "./source";
import type { About } from "./types";

export interface View {
  /** Names it in the address. */
  id: string;
  title: string;
  /** What it answers, in one sentence. */
  question: string;
  defaults(about: About): Settings;
  /** Whether it looks at one run of a comparison. */
  byRun?: boolean;
  Page: ComponentType;
}

const registered = new Map<string, View>();

export function register(view: View): void {
  registered.set(view.id, view);
}

/** Return the views that have something to show, in their order. */
export function views(about: About): View[] {
  return about.views.flatMap((id) => registered.get(id) ?? []);
}
