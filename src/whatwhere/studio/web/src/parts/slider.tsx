/** A slider with a field for the exact number. Dragging reports some times a second, not at every pixel. */

import { useEffect, useRef, useState } from "preact/hooks";
import { formatNumber } from "../numbers";
import type { Control } from "../types";
import { Choice, Flag } from "./choice";

type Scale = Pick<Control, "low" | "high" | "base" | "steps"> & { whole: boolean };

interface Props extends Scale {
  label: string;
  value: number;
  help?: string;
  /** `now` is true while it is dragged. */
  change(value: number, now: boolean): void;
}

const PAUSE = 80;

export function Slider({ label, value, help, change, ...scale }: Props) {
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
    <div class="slider" title={help}>
      <span class="label" aria-hidden="true">
        {label}
      </span>
      <input
        type="range"
        aria-label={label}
        aria-valuetext={formatNumber(shown)}
        min={stepOf(scale.low, scale)}
        max={stepOf(scale.high, scale)}
        step={1}
        value={Math.round(stepOf(shown, scale))}
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

/** Return the step of the slider at a number. */
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

type OneProps = Pick<Props, "value" | "change">;

/** The slider of one head of a bias among some. */
export function HeadSlider({ heads, ...props }: OneProps & { heads: number }) {
  return (
    <Slider
      label="head"
      help="of biases, counted from 0"
      low={0}
      high={Math.max(heads - 1, 1)}
      base={null}
      steps={1}
      whole
      {...props}
    />
  );
}

/** The slider of the number of heads; it ends lower where every head costs time. */
export function HeadsSlider(props: OneProps & { high: number }) {
  return <Slider label="heads" help="of the schemes of the catalogue" low={1} base={null} steps={1} whole {...props} />;
}

interface ParametersProps {
  of: Control[];
  /** Set one of them. */
  set(name: string, value: number | string | boolean, now: boolean): void;
}

/** Controls of parameters: sliders, choices and boxes; rare ones are folded away. */
export function Parameters({ of, set }: ParametersProps) {
  const rare = of.filter((parameter) => parameter.rare);
  return (
    <div class="parameters">
      {of
        .filter((parameter) => !parameter.rare)
        .map((parameter) => (
          <One key={parameter.name} parameter={parameter} set={set} />
        ))}
      {rare.length > 0 && (
        <details>
          <summary>more</summary>
          {rare.map((parameter) => (
            <One key={parameter.name} parameter={parameter} set={set} />
          ))}
        </details>
      )}
    </div>
  );
}

function One({ parameter, set }: { parameter: Control; set: ParametersProps["set"] }) {
  const { name, kind, value, help } = parameter;
  if (kind === "flag") {
    return <Flag label={name} help={help} value={value === true} change={(on) => set(name, on, false)} />;
  }
  if (kind === "choice") {
    const change = (chosen: string) => set(name, chosen, false);
    return <Choice label={name} help={help} value={String(value)} options={parameter.choices} change={change} />;
  }
  const change = (number: number, now: boolean) => set(name, number, now);
  return <Slider {...parameter} label={name} value={Number(value)} whole={kind === "whole"} change={change} />;
}

/** Read and write settings as one text, `factor=4 theta=10000`, as the API takes them. */
export function parameterMap(text: string): Map<string, string> {
  const pieces = text.split(/\s+/).filter((piece) => piece.includes("="));
  return new Map(pieces.map((piece) => [piece.slice(0, piece.indexOf("=")), piece.slice(piece.indexOf("=") + 1)]));
}

export function written(settings: Map<string, string>): string {
  return [...settings].map(([name, value]) => `${name}=${value}`).join(" ");
}

export function withParameter(text: string, name: string, value: number | string | boolean): string {
  return written(parameterMap(text).set(name, String(value)));
}
