/** What components share: the source, answers to questions, the theme, the size of an element. */

import { createContext } from "preact";
import { useContext, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Problem, type Settings, type Source } from "./source";
import type { About, Queries } from "./types";
import { currentTheme, onTheme, type Theme } from "./theme";

export const SourceContext = createContext<Source | null>(null);
interface ViewState<S> {
  about: About;
  /** The run of a comparison which is looked at, or "". */
  run: string;
  /** What the address says of the view, each of the type of its default. */
  settings: S;
  /** Change some settings; the address follows. What is changed while it is dragged replaces the last address. */
  change(some: Settings, replace?: boolean): void;
}

export const ViewContext = createContext<ViewState<Settings>>({
  about: { kind: "checkpoint", path: "" } as About,
  run: "",
  settings: {},
  change: () => undefined,
});

export function useView<S = Settings>(): ViewState<S> {
  return useContext(ViewContext) as ViewState<S>;
}

const BY_RUN = /^(tokens|maps)\.|^(overview\.inspected|diagnostics\.examine|pipeline\.walk)$/;

/** Return the settings of a query with the run that is looked at, where it is about the model of one. */
export function useWithRun(): <S extends Settings | null>(name: keyof Queries, settings: S) => S {
  const { run } = useView();
  return (name, settings) => (settings && run && BY_RUN.test(name) ? { ...settings, run } : settings);
}

export function useSource(): Source {
  const source = useContext(SourceContext);
  if (!source) throw new Error("a view is outside of the page");
  return source;
}

export interface Query<T> {
  /** The last answer, also while a new one is pending. */
  answer: T | null;
  problem: string | null;
  busy: boolean;
}

/** Send a query whenever its settings change, and again so many milliseconds after an answer; null sends none. */
export function useQuery<N extends keyof Queries>(name: N, given: Settings | null, every = 0): Query<Queries[N]> {
  const source = useSource();
  const settings = useWithRun()(name, given);
  const [query, setQuery] = useState<Query<Queries[N]>>({ answer: null, problem: null, busy: settings !== null });
  const [turn, setTurn] = useState(0);
  const key = JSON.stringify([name, settings, turn]);
  useEffect(() => {
    if (settings === null) {
      setQuery({ answer: null, problem: null, busy: false });
      return;
    }
    const leaving = new AbortController();
    setQuery((before) => ({ ...before, problem: null, busy: true })); // the last query's problem is no longer shown
    source.query(name, settings, leaving.signal).then(
      (answer) => setQuery({ answer, problem: null, busy: false }),
      (problem: unknown) => {
        if (!leaving.signal.aborted) setQuery({ answer: null, problem: messageOf(problem), busy: false });
      },
    );
    return () => leaving.abort();
  }, [key, source]);
  useEffect(() => {
    if (!every || query.busy) return;
    const timer = setTimeout(() => setTurn(turn + 1), every);
    return () => clearTimeout(timer);
  }, [every, query.busy]);
  return query;
}

export function messageOf(problem: unknown): string {
  if (problem instanceof Problem) return problem.message;
  console.error(problem);
  return "This part of the page failed; the browser's console has the error.";
}

export function useTheme(): Theme {
  const [theme, setTheme] = useState(currentTheme());
  useEffect(() => onTheme(setTheme), []);
  return theme;
}

export function useWidth<E extends HTMLElement>(): [{ current: E | null }, number] {
  const element = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    if (!element.current) return;
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    watcher.observe(element.current);
    setWidth(Math.floor(element.current.clientWidth));
    return () => watcher.disconnect();
  }, []);
  return [element, width];
}

/** Pixels at the right end of a narrow list, which fade out (studio.css). */
const FADED = 40;

/** Scroll a list that is wider than the screen to one of its parts: the list alone, and sideways, not the page. */
export function useInSight<E extends HTMLElement>(part: string, now: string): { current: E | null } {
  const list = useRef<E>(null);
  useEffect(() => {
    const current = list.current?.querySelector<HTMLElement>(part);
    if (!list.current || !current) return;
    const { left, right } = list.current.getBoundingClientRect();
    const here = current.getBoundingClientRect();
    list.current.scrollLeft += Math.min(here.left - left, 0) + Math.max(here.right + FADED - right, 0);
  }, [now]);
  return list;
}

export function useRested<T>(value: T, milliseconds: number): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return rested;
}
