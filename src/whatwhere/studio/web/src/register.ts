/** The views, each of which registers itself when its file is imported; views/index.ts imports them. */

import type { ComponentType } from "preact";
import type { Settings } from "./source";
import type { About } from "./types";

export interface ViewProps {
  about: About;
  settings: Settings;
  /** Change some settings; the address follows. A slider's value replaces the last address in the history. */
  change(some: Settings, replace?: boolean): void;
}

export interface View {
  /** Names it in the address. */
  id: string;
  /** Its position in the navigation, 1 to 12. */
  order: number;
  title: string;
  /** What it answers, in one sentence. */
  question: string;
  defaults(about: About): Settings;
  /** Whether there is something to show. */
  shown(about: About): boolean;
  /** Why the view shows nothing of what is open, only how to use it or an example; null where it does. */
  empty?(about: About): string | null;
  /** Whether it looks at one run of a comparison. */
  byRun?: boolean;
  Page: ComponentType<ViewProps>;
}

/** Return why a view of training shows nothing of a file that holds no run. */
export function withoutRuns({ kind }: About): string | null {
  return kind === "results" ? null : "What is open holds no training; a small one can be trained here.";
}

const registered: View[] = [];

export function register(view: View): void {
  registered.push(view);
  registered.sort((one, other) => one.order - other.order);
}

export function views(about: About): View[] {
  const shown = registered.filter((view) => view.shown(about) && (about.exported?.includes(view.id) ?? true));
  return shown.sort((one, other) => Number(other.id === about.first) - Number(one.id === about.first));
}
