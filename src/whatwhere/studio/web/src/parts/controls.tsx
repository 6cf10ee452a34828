/** Controls of a view, each of which shows and changes a setting of its address: a choice, a yes or no, a number. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useView } from "../hooks";
import { formatNumber } from "../numbers";
import type { Settings } from "../source";
import type { Parameter } from "../types";

interface Bound<T> {
  label: string;
  name: string;
  /** Shown instead of the setting. */
  value?: T;
  /** What is changed instead of the setting alone. */
  set?(value: T): Settings;
  help?: string;
}

/** Return what a control shows, and what changes it; `now` is true while it is dragged. */
export function useSetting<T>({ name, value, set }: Bound<T>): [T, (value: T, now?: boolean) => void] {
  const { settings, change } = useView<Record<string, T>>();
  const changed = (next: T) => (set ? set(next) : ({ [name]: next } as Settings));
  return [value ?? settings[name]!, (next, now) => change(changed(next), now)];
}

type Value = string | number;

/** A value with the text that is written for it, and the name of a group of values. */
export type Option = readonly [value: Value, text: string, group?: string];

interface ChoiceProps extends Bound<Value> {
  options: readonly (Value | Option)[];
}

/** One of some values, and the one that is chosen if it is none of them. */
export function Choice(props: ChoiceProps) {
  const [value, change] = useSetting(props);
  const options = props.options.map((each): Option => (typeof each === "object" ? each : [each, String(each)]));
  if (!options.some(([each]) => each === value)) options.push([value, String(value)]);
  if (typeof value === "number") options.sort(([one], [other]) => Number(one) - Number(other));
  const groups = [...new Set(options.map(([, , group]) => group))];
  const within = (group: string | undefined) =>
    options
      .filter(([, , own]) => own === group)
      .map(([each, text]) => (
        <option key={each} value={String(each)}>
          {text}
        </option>
      ));
  const take = (text: string) => change(options.find(([each]) => String(each) === text)![0]);
  return (
    <label class="choice" title={props.help}>
      {props.label}{" "}
      <select value={String(value)} onChange={(event) => take(event.currentTarget.value)}>
        {groups.map((group) => (group ? <optgroup label={group}>{within(group)}</optgroup> : within(group)))}
      </select>
    </label>
  );
}

export function Flag(props: Bound<boolean>) {
  const [value, change] = useSetting(props);
  return (
    <label class="choice" title={props.help}>
      <input type="checkbox" checked={value} onChange={(event) => change(event.currentTarget.checked)} /> {props.label}
    </label>
  );
}

/** The numbers of a slider: even steps, or powers of a base with so many steps between two. */
type Scale = Pick<Parameter, "low" | "high" | "base" | "steps"> & { whole: boolean };

const PAUSE = 80;

/** A slider with a field for the exact number. Dragging reports some times a second, not at every pixel. */
export function Slider({ low = 0, base = null, steps = 1, whole = true, ...props }: Bound<number> & SliderScale) {
  const scale = { low, base, steps, whole, high: props.high };
  const [value, change] = useSetting(props);
  const [held, hold] = useState<number | null>(null);
  const latest = useRef({ change, held });
  latest.current = { change, held };
  const timer = useRef(0);
  useEffect(() => hold(null), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const shown = held ?? value;
  const drag = (step: number) => {
    hold(valueAt(step, scale));
    if (timer.current) return;
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      if (latest.current.held !== null) latest.current.change(latest.current.held, true);
    }, PAUSE);
  };
  return (
    <div class="slider" title={props.help}>
      <span class="label" aria-hidden="true">
        {props.label}
      </span>
      <input
        type="range"
        aria-label={props.label}
        aria-valuetext={formatNumber(shown)}
        min={stepOf(low, scale)}
        max={stepOf(props.high, scale)}
        step={1}
        value={Math.round(stepOf(shown, scale))}
        onInput={(event) => drag(Number(event.currentTarget.value))}
      />
      <input
        type="number"
        aria-label={`${props.label}, exactly`}
        step="any"
        value={String(shown)}
        onChange={(event) => event.currentTarget.value !== "" && change(Number(event.currentTarget.value))}
      />
    </div>
  );
}

type SliderScale = Partial<Scale> & Pick<Scale, "high">;

export function stepOf(value: number, { base, steps }: Scale): number {
  return base === null ? value * steps : (Math.log(Math.max(value, 1e-300)) / Math.log(base)) * steps;
}

/** Return the number at a step of the slider, rounded to three digits unless it is a power of the base. */
export function valueAt(step: number, { base, steps, low, high, whole }: Scale): number {
  const exact = base === null ? step / steps : base ** (step / steps);
  const power = base !== null && step % steps === 0;
  const rounded = whole ? Math.round(exact) : power ? exact : Number(exact.toPrecision(3));
  return Math.min(Math.max(rounded, low), high);
}

interface FoldedProps {
  title: string;
  /** Whether a wide screen folds them away, too. */
  rare?: boolean;
  /** Whether they are open at first. */
  open?: boolean;
  children: ComponentChildren;
}

/** Controls that a narrow screen folds away. */
export function Folded({ title, rare = false, open = false, children }: FoldedProps) {
  const [first] = useState(open);
  const screen = useMemo(() => matchMedia("(max-width: 40rem)"), []);
  const [narrow, setNarrow] = useState(screen.matches);
  useEffect(() => {
    const follow = () => setNarrow(screen.matches);
    screen.addEventListener("change", follow);
    return () => screen.removeEventListener("change", follow);
  }, [screen]);
  if (!narrow && !rare) return <>{children}</>;
  return (
    <details class="folded" open={first}>
      <summary>{title}</summary>
      {children}
    </details>
  );
}

/** Controls of parameters, all in one setting, as `factor=4 theta=10000`; rare ones are folded away. */
export function Parameters({ of, name }: { of: Parameter[]; name: string }) {
  const text = useView<Record<string, string>>().settings[name]!;
  const control = ({ name: parameter, kind, value, choices, help, rare: _, ...scale }: Parameter) => {
    const set = (next: Value | boolean) => ({ [name]: withParameter(text, parameter, next) });
    const bound = { key: parameter, label: parameter, name, set, help };
    if (kind === "flag") return <Flag {...bound} value={value === true} />;
    if (kind === "choice") return <Choice {...bound} value={String(value)} options={choices} />;
    return <Slider {...bound} {...scale} value={Number(value)} whole={kind === "whole"} />;
  };
  const rare = of.filter((parameter) => parameter.rare);
  return (
    <div class="parameters">
      {of.filter((parameter) => !parameter.rare).map(control)}
      {rare.length > 0 && (
        <details>
          <summary>more</summary>
          {rare.map(control)}
        </details>
      )}
    </div>
  );
}

export function parameterMap(text: string): Map<string, string> {
  const pieces = text.split(/\s+/).filter((piece) => piece.includes("="));
  return new Map(pieces.map((piece) => [piece.slice(0, piece.indexOf("=")), piece.slice(piece.indexOf("=") + 1)]));
}

export function withParameter(text: string, name: string, value: Value | boolean): string {
  return [...parameterMap(text).set(name, String(value))].map(([name, value]) => `${name}=${value}`).join(" ");
}
