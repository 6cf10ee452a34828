/** The training replay: scrub the steps of a run, and watch the table, the number line and the loss move. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { visibleToken } from "../escape";
import { useQuery, useView } from "../hooks";
import { fixed, formatNumber, whole, upTo } from "../numbers";
import { announce, Answered } from "../parts/states";
import { Choice, type Option } from "../parts/controls";
import { DrawnFigure, HeatFigure, LineFigure } from "../parts/figure";
import { spread } from "../parts/heat";
import { TokenLabel } from "../parts/field";
import { runCode } from "../python";
import type { Frames } from "../types";
import { digitLine, mapSketch } from "./replay/frame_svg";

export const END = 1_000_000; // beyond any step: at the start of a training, nothing has been written that could be seen

const OF: Option[] = [
  ["change", "the change, E − E0"],
  ["table", "the table E"],
];

export function Replay() {
  const query = useQuery("replay.frames", { run: useView().run });
  return (
    <Answered query={query} what="reading the run">
      {(answer) =>
        answer.frames ? (
          <Film answer={answer} />
        ) : (
          <>
            <p class="note">The token table cannot be replayed: {answer.missing} The loss is there.</p>
            <Loss answer={answer} step={null} />
          </>
        )
      }
    </Answered>
  );
}

function Film({ answer }: { answer: Frames }) {
  const { settings } = useView<{ at: number; of: string }>();
  const steps = answer.frames!.steps.values;
  const at = Math.min(Math.max(settings.at, 0), steps.length - 1);
  const of = settings.of === "table" ? "table" : "change";
  return (
    <>
      <Choice label="show" name="of" value={of} options={OF} />
      <Controls steps={steps} at={at} loss={lossAt(answer, steps[at]!)} />
      <div class="pair">
        <Points answer={answer} at={at} of={of} />
        <div>
          <Loss answer={answer} step={steps[at]!} />
          {answer.frames!.line && <Line answer={answer} at={at} />}
        </div>
      </div>
      <Rows answer={answer} at={at} of={of} />
    </>
  );
}

function lossAt({ loss_steps, losses }: Frames, step: number): number | null {
  const done = loss_steps.values.filter((each) => each <= step).length;
  return done ? losses.values[done - 1]! : null;
}

/** Return whether the browser prefers reduced motion: then nothing plays by itself. */
function useStill(): boolean {
  const preference = useMemo(() => matchMedia("(prefers-reduced-motion: reduce)"), []);
  const [still, setStill] = useState(preference.matches);
  useEffect(() => {
    const follow = () => setStill(preference.matches);
    preference.addEventListener("change", follow);
    return () => preference.removeEventListener("change", follow);
  }, [preference]);
  return still;
}

function Controls({ steps, at, loss }: { steps: ArrayLike<number>; at: number; loss: number | null }) {
  const { change } = useView();
  const go = (to: number) => change({ at: to }, true);
  const still = useStill();
  const [plays, setPlays] = useState(false);
  const last = steps.length - 1;
  const now = useRef({ at, go });
  now.current = { at, go };
  const moving = plays && !still;
  useEffect(() => {
    if (!moving) return undefined;
    const timer = setInterval(() => {
      if (now.current.at >= last) setPlays(false);
      else now.current.go(now.current.at + 1);
    }, 350); // milliseconds
    return () => clearInterval(timer);
  }, [moving, last]);
  const text = `step ${whole(steps[at]!)} of ${whole(steps[last]!)}`;
  const jump = (to: number) => {
    setPlays(false);
    go(to);
    announce(`step ${whole(steps[to]!)}`);
  };
  return (
    <div class="replay" role="group" aria-label="Steps of the training">
      <button type="button" aria-label="Back" disabled={at === 0} onClick={() => jump(at - 1)}>
        ◀
      </button>
      {!still && (
        <button
          type="button"
          onClick={() => {
            if (!moving && at === last) go(0);
            setPlays(!moving);
          }}
        >
          {moving ? "Pause" : "Play"}
        </button>
      )}
      <button type="button" aria-label="Forward" disabled={at === last} onClick={() => jump(at + 1)}>
        ▶
      </button>
      <input
        type="range"
        min={0}
        max={last}
        step={1}
        value={at}
        aria-label="Step"
        aria-valuetext={text}
        data-main=""
        onInput={(event) => {
          setPlays(false);
          go(Number(event.currentTarget.value));
        }}
      />
      <output>
        {text}
        {loss !== null && <>, loss {formatNumber(loss)}</>}
      </output>
    </div>
  );
}

function Loss({ answer, step }: { answer: Frames; step: number | null }) {
  const { loss_steps, losses, held_out } = answer;
  if (!losses.values.length) return <p class="note">No loss of this run was recorded.</p>;
  return (
    <LineFigure
      title="Loss"
      x={loss_steps.values}
      curves={[
        { name: "loss", values: losses.values, color: 2 },
        ...(held_out.values.length ? [{ name: "held-out loss", values: held_out.values, color: 1 }] : []),
      ]}
      xLabel="step"
      yLabel="cross-entropy, nats"
      marks={step === null ? [] : [{ x: Math.max(step, loss_steps.values[0]!), text: `step ${whole(step)}` }]}
      note="One random batch per point, so the curve is noisy."
      how="Cross-entropy of the batch before the step is taken, as the run kept it about fifty times. Held-out: of sequences that neither training nor any test has, as it was last measured."
    />
  );
}

interface Shown {
  answer: Frames;
  at: number;
  of: "table" | "change";
}

function tablesCode(answer: Frames): string {
  return `${runCode(answer.run)}\ntables = results.trace(run)["tables"]`;
}

function digitsCode(answer: Frames, at: number): string {
  const digits = Array.from("0123456789", (digit) => answer.words.indexOf(digit)).join(", ");
  return [
    `changes = (tables[${at}] - tables[0])[[${digits}]]`,
    "line = ww.analysis.principal_components(changes, 1).coordinates[:, 0]",
    "abs(np.corrcoef(line, np.arange(10))[0, 1])",
  ].join("\n");
}

function Points({ answer, at, of }: Shown) {
  const { planes, norms, steps } = answer.frames!;
  const { words } = answer;
  const { points, variance_explained: share } = planes[of]!;
  const title = of === "table" ? "The tokens on a plane" : "The change on a plane";
  const table = of === "table" ? "tables[-1]" : "tables[-1] - tables[0]";
  const explained = fixed(100 * (share.values[0]! + share.values[1]!), 0);
  const count = points.shape[1]!;
  const coordinate = (token: number, axis: number) => points.values[(at * count + token) * 2 + axis];
  return (
    <DrawnFigure
      title={title}
      note={`The axes are those of the end, where they explain ${explained} % of the variance.`}
      draw={(width) => mapSketch(words, points, at, width)}
      words={`${title} after step ${steps.values[at]}. The table below has the coordinates.`}
      rows={upTo(count)}
      columns={[
        {
          title: "token",
          value: (token) => visibleToken(words[token]!),
          cell: (token) => <TokenLabel word={words[token]!} />,
        },
        { title: "x", numeric: true, value: (token) => coordinate(token, 0) },
        { title: "y", numeric: true, value: (token) => coordinate(token, 1) },
        { title: "norm", numeric: true, value: (token) => norms.values[at * count + token] },
      ]}
      code={`${tablesCode(answer)}\nww.analysis.principal_components(${table}, 2).coordinates`}
      how={
        `Principal components of ${of === "table" ? "the table E" : "E − E0"} after the last step; every other step, ` +
        "less the mean of the last, is projected onto these two axes. Lines show the path of a token since step 0."
      }
    />
  );
}

function Line({ answer, at }: { answer: Frames; at: number }) {
  const { line, steps } = answer.frames!;
  const points = line!.along.values.slice(at * 10, at * 10 + 10);
  const title = "The digits on a line";
  const r = Number.isFinite(line!.r.values[at]) ? fixed(line!.r.values[at]!, 2) : null;
  return (
    <DrawnFigure
      title={title}
      note={
        <>
          |r| <b>{r ?? "–"}</b> between the digits and their coordinates: 1 where they are in order and evenly spaced.
        </>
      }
      draw={(width) => digitLine(points, width)}
      words={`${title} after step ${steps.values[at]}: |r| ${r ?? "not defined"}.`}
      rows={upTo(10)}
      columns={[
        { title: "digit", numeric: true, value: (digit) => digit },
        { title: "coordinate", numeric: true, value: (digit) => points[digit] },
      ]}
      code={`${tablesCode(answer)}\n${digitsCode(answer, at)}`}
      how={
        "The change of the ten digits, E − E0, along its first principal axis at the end, less its mean. |r| is " +
        "measured on each step's own first axis, as in the report."
      }
    />
  );
}

function Rows({ answer, at, of }: Shown) {
  const { tables, steps } = answer.frames!;
  const [, rows = 0, columns = 0] = tables.shape;
  const part = (step: number) => {
    const table = Float32Array.from(tables.values.subarray(step * rows * columns, (step + 1) * rows * columns));
    return of === "table" ? table : table.map((value, n) => value - tables.values[n]!);
  };
  const limit = useMemo(() => spread(part(steps.values.length - 1)), [answer, of]);
  return (
    <HeatFigure
      title={`${of === "table" ? "The table" : "The change"} after step ${whole(steps.values[at]!)}`}
      cells={{ values: part(at), shape: [rows, columns] }}
      {...(rows <= 40 && { labels: answer.words.map((word) => visibleToken(word)) })}
      xLabel="feature"
      yLabel="token"
      limit={limit}
      note="One row per token; all steps share one color scale."
      how="The numbers that the run recorded. The colors end at three standard deviations of the last table."
    />
  );
}
