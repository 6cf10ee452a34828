/** A comparison that is training: how far it is, and the loss of each run, drawn while it falls. */

import { median } from "d3-array";
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

/** Curves of the runs at the steps `x`: one of each run, or the median of each scheme's with the least and the greatest. */
function curvesOf({ runs, looks }: Answer, x: number[], each: boolean, which: "losses" | "held_out"): Curve[] {
  const seeds = [...new Set(runs.map(({ seed }) => seed))];
  const known = runs.filter((run) => run[which].length);
  const schemes = [...new Set(known.map(({ scheme }) => scheme))];
  const named = each
    ? known.map((run) => ({ name: `${run.scheme}, seed ${run.seed}`, of: [run] }))
    : schemes.map((name) => ({ name, of: known.filter(({ scheme }) => scheme === name) }));
  return named.map(({ name, of }) => {
    const number = looks[of[0]!.scheme]!;
    // The color is that of the scheme in the results; the strokes differ with the seed.
    const strokes = Math.floor(number / 7) * seeds.length + (each ? seeds.indexOf(of[0]!.seed) : 0);
    const tables = of.map((run) => new Map(run[which].map(([step, loss]) => [step, loss])));
    const at = x.map((step) => tables.flatMap((table) => table.get(step) ?? []).sort((a, b) => a - b));
    const band = !each && seeds.length > 1;
    return {
      color: look(number).color!,
      ...strokeOf(strokes),
      name,
      values: at.map((losses) => median(losses) ?? null),
      ...(band && { low: at.map((losses) => losses[0] ?? null), high: at.map((losses) => losses.at(-1) ?? null) }),
    };
  });
}

function Losses(answer: Answer) {
  const { runs } = answer;
  const { log, each, held } = useView<{ log: boolean; each: boolean; held: boolean }>().settings;
  const which = held ? "held_out" : "losses";
  const several = new Set(runs.map(({ seed }) => seed)).size > 1;
  const last = Math.max(...runs.map(({ steps }) => steps));
  const x = [...new Set([...runs.flatMap((run) => run[which].map(([step]) => step)), last])].sort((a, b) => a - b);
  const apart = each || !several;
  return (
    <>
      <LineFigure
        title={`${held ? "Held-out loss" : "Loss"} of each ${apart ? "run" : "scheme"}`}
        x={x}
        curves={curvesOf(answer, x, apart, which)}
        xLabel="step"
        yLabel="cross-entropy, nats"
        logY={log}
        height={420}
        note={
          (!several
            ? ""
            : apart
              ? "A color for each scheme, strokes for each seed. "
              : "Median over the seeds that reached a step; shaded from the least to the greatest. ") +
          (held ? "Of sequences that neither training nor any test has." : "One random batch per point: noisy.")
        }
        how="Cross-entropy of one random batch, about fifty times in a run; the held-out one before and ten times. The results open here when all runs are finished and tested. Ctrl+C in the terminal interrupts; the same command, run again, goes on with what is missing. Nothing on this page changes a run."
      >
        <Flag label="logarithmic" name="log" /> <Flag label="held out" name="held" />{" "}
        {several && <Flag label="each run" name="each" />}
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
