/** A comparison that is training: how far it is, and the loss of each run, drawn while it falls. */

import { useEffect, useRef } from "preact/hooks";
import { useQuery, useView } from "../hooks";
import { fixed, upTo, whole } from "../numbers";
import { Flag } from "../parts/controls";
import { LineFigure } from "../parts/figure";
import { type Curve, look, strokeOf } from "../parts/plot";
import { Waiting, Wrong } from "../parts/states";
import { Table } from "../parts/table";
import type { LossesSoFar, Training as Answer } from "../types";

const EVERY = 1000;
/** Seconds of training after which a rest can be estimated, and without news after which it may have ended. */
const KNOWN = 5;
const SILENT = 60;

export function Training() {
  const { answer, problem } = useQuery("training.now", {}, EVERY);
  const finished = answer?.finished ?? false;
  useEffect(() => {
    if (!finished) return;
    history.replaceState(null, "", location.pathname); // the page opens anew, on the results
    location.reload();
  }, [finished]);
  if (problem !== null) return <Wrong message={problem} />;
  if (!answer) return <Waiting what="reading losses" />;
  return (
    <>
      <Progress runs={answer.runs} />
      {answer.runs.some(({ losses }) => losses.length) ? (
        <Losses {...answer} />
      ) : (
        <Waiting what="waiting for the first losses" />
      )}
    </>
  );
}

function stepsOf({ losses }: LossesSoFar): number {
  return losses.at(-1)?.[0] ?? 0;
}

/** How far all runs are; how long the rest takes follows from the steps since the page was opened. */
function Progress({ runs }: { runs: LossesSoFar[] }) {
  const done = runs.filter(({ finished }) => finished).length;
  const steps = runs.reduce((sum, run) => sum + stepsOf(run), 0);
  const all = runs.reduce((sum, run) => sum + run.steps, 0);
  const now = performance.now() / 1000;
  const begin = useRef({ now, steps });
  const news = useRef({ now, of: "" });
  const of = `${steps} ${done}`;
  if (news.current.of !== of) news.current = { now, of };
  const passed = news.current.now - begin.current.now;
  const speed = passed < KNOWN ? 0 : (steps - begin.current.steps) / passed;
  if (runs.length === done || now - news.current.now > SILENT)
    return (
      <p class="answer">
        {done} {done === 1 ? "run" : "runs"} finished, and nothing is training here now. If it was interrupted, the same
        command, run again, goes on with the others.
      </p>
    );
  return (
    <p class="answer">
      {done} of {runs.length} runs finished, {whole((100 * steps) / all)} % of all steps
      {speed > 0 && steps < all && `; about ${duration((all - steps) / speed)} of training left`}.
    </p>
  );
}

function duration(seconds: number): string {
  if (seconds < 90) return `${whole(seconds)} s`;
  return seconds < 5400 ? `${whole(seconds / 60)} min` : `${fixed(seconds / 3600, 1)} h`;
}

function Losses({ runs, looks }: Answer) {
  const { log } = useView<{ log: boolean }>().settings;
  const seeds = [...new Set(runs.map(({ seed }) => seed))];
  const last = Math.max(...runs.map(({ steps }) => steps));
  const x = [...new Set([...runs.flatMap(({ losses }) => losses.map(([step]) => step)), last])].sort((a, b) => a - b);
  const curves = runs
    .filter(({ losses }) => losses.length)
    .map(({ scheme, seed, losses }): Curve => {
      const known = new Map(losses.map(([step, loss]) => [step, loss]));
      const number = looks[scheme]!;
      // The color is that of the scheme in the results; the strokes differ with the seed.
      const strokes = Math.floor(number / 7) * seeds.length + seeds.indexOf(seed);
      return {
        color: look(number).color!,
        ...strokeOf(strokes),
        name: `${scheme}, seed ${seed}`,
        values: x.map((step) => known.get(step) ?? null),
      };
    });
  return (
    <>
      <LineFigure
        title="Loss of each run"
        x={x}
        curves={curves}
        xLabel="step"
        yLabel="cross-entropy, nats"
        logY={log}
        height={420}
        note={
          seeds.length > 1
            ? "A color for each scheme, strokes for each seed. One random batch per point: noisy."
            : "One random batch per point: noisy."
        }
        how="Cross-entropy of one random batch, about fifty times in a run. The results open here when all runs are finished and tested. Ctrl+C in the terminal interrupts; the same command, run again, goes on with what is missing. Nothing on this page changes a run."
      >
        <div class="controls">
          <Flag label="logarithmic" name="log" />
        </div>
      </LineFigure>
      <Table
        caption="Runs"
        rows={upTo(runs.length)}
        columns={[
          { title: "scheme", value: (n) => runs[n]!.scheme },
          { title: "seed", numeric: true, value: (n) => runs[n]!.seed },
          { title: "state", value: (n) => state(runs[n]!) },
          { title: "step", numeric: true, value: (n) => stepsOf(runs[n]!) },
          { title: "last loss", numeric: true, value: (n) => runs[n]!.losses.at(-1)?.[1] },
        ]}
      />
    </>
  );
}

function state(run: LossesSoFar): string {
  if (run.finished) return "finished";
  return stepsOf(run) === run.steps ? "being tested" : run.losses.length ? "training" : "waiting";
}
