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
  Page: ComponentType<ViewProps>;
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
