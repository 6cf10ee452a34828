/** A slider with a field for the exact number. What is dragged is told some times a second, not at every pixel. */

import { useEffect, useRef, useState } from "preact/hooks";
import { formatNumber } from "../numbers";

/** One setting of a scheme, as the API describes it. */
export interface Parameter {
  name: string;
  kind: "flag" | "choice" | "whole" | "number";
  value: number | string | boolean;
  low: number;
  high: number;
  /** Of a logarithmic slider; null for a linear one. */
  base: number | null;
  /** Of the slider, for each time the base, or for each 1. */
  steps: number;
  choices: string[];
  words: string;
  rare: boolean;
}

type Scale = Pick<Parameter, "low" | "high" | "base" | "steps"> & { whole: boolean };

interface Props extends Scale {
  label: string;
  value: number;
  words?: string;
  /** `now` is true while it is dragged. */
  change(value: number, now: boolean): void;
}

const PAUSE = 80;

export function Slider({ label, value, words, change, ...scale }: Props) {
  const [held, hold] = useState<number | null>(null);
  const latest = useRef({ change, held });
  latest.current = { change, held };
  const timer = useRef(0);
  useEffect(() => hold(null), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const shown = held ?? value;
  const drag = (place: number) => {
    hold(valueAt(place, scale));
    if (timer.current) return;
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      if (latest.current.held !== null) latest.current.change(latest.current.held, true);
    }, PAUSE);
  };
  return (
    <div class="slider" title={words}>
      <span class="label" aria-hidden="true">
        {label}
      </span>
      <input
        type="range"
        aria-label={label}
        aria-valuetext={formatNumber(shown)}
        min={placeOf(scale.low, scale)}
        max={placeOf(scale.high, scale)}
        step={1}
        value={Math.round(placeOf(shown, scale))}
        onInput={(event) => drag(Number(event.currentTarget.value))}
      />
      <input
        type="number"
        aria-label={`${label}, exactly`}
        step="any"
        value={String(shown)}
        onChange={(event) => event.currentTarget.value !== "" && change(Number(event.currentTarget.value), false)}
      />
    </div>
  );
}

/** Give the step of the slider that a number stands at. */
export function placeOf(value: number, { base, steps }: Scale): number {
  return base === null ? value * steps : (Math.log(Math.max(value, 1e-300)) / Math.log(base)) * steps;
}

/** Give the number at a step of the slider, rounded to three digits unless it is a power of the base. */
export function valueAt(place: number, { base, steps, low, high, whole }: Scale): number {
  const exact = base === null ? place / steps : base ** (place / steps);
  const power = base !== null && place % steps === 0;
  const rounded = whole ? Math.round(exact) : power ? exact : Number(exact.toPrecision(3));
  return Math.min(Math.max(rounded, low), high);
}

interface ParametersProps {
  of: Parameter[];
  /** Set one of them. */
  turn(name: string, value: number | string | boolean, now: boolean): void;
}

/** Draw settings: sliders, choices and boxes; what is seldom turned behind a lid. */
export function Parameters({ of, turn }: ParametersProps) {
  const rare = of.filter((parameter) => parameter.rare);
  return (
    <div class="parameters">
      {of.filter((parameter) => !parameter.rare).map((parameter) => (
        <One key={parameter.name} parameter={parameter} turn={turn} />
      ))}
      {rare.length > 0 && (
        <details>
          <summary>more</summary>
          {rare.map((parameter) => (
            <One key={parameter.name} parameter={parameter} turn={turn} />
          ))}
        </details>
      )}
    </div>
  );
}

function One({ parameter, turn }: { parameter: Parameter; turn: ParametersProps["turn"] }) {
  const { name, kind, value, words } = parameter;
  if (kind === "flag") {
    return (
      <label class="choice" title={words}>
        <input type="checkbox" checked={value === true} onChange={(event) => turn(name, event.currentTarget.checked, false)} /> {name}
      </label>
    );
  }
  if (kind === "choice") {
    return (
      <label class="choice" title={words}>
        {name}{" "}
        <select value={String(value)} onChange={(event) => turn(name, event.currentTarget.value, false)}>
          {parameter.choices.map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      </label>
    );
  }
  const change = (number: number, now: boolean) => turn(name, number, now);
  return <Slider {...parameter} label={name} value={Number(value)} whole={kind === "whole"} change={change} />;
}

/** Read and write settings as one text, `factor=4 theta=10000`, as the API takes them. */
export function turned(text: string): Map<string, string> {
  const pieces = text.split(/\s+/).filter((piece) => piece.includes("="));
  return new Map(pieces.map((piece) => [piece.slice(0, piece.indexOf("=")), piece.slice(piece.indexOf("=") + 1)]));
}

export function written(settings: Map<string, string>): string {
  return [...settings].map(([name, value]) => `${name}=${value}`).join(" ");
}

export function withTurned(text: string, name: string, value: number | string | boolean): string {
  return written(turned(text).set(name, String(value)));
}
