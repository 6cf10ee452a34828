/** A comparison that is training: the loss of each run, drawn while it falls. */

import { useEffect } from "preact/hooks";
import { useQuery } from "../hooks";
import { whole } from "../numbers";
import { LineFigure } from "../parts/figure";
import { type Curve, look } from "../parts/plot";
import { Answered, Waiting } from "../parts/states";
import type { Training as Answer } from "../types";

const EVERY = 1000;

export function Training() {
  const query = useQuery("training.now", {}, EVERY);
  const finished = query.answer?.finished ?? false;
  useEffect(() => {
    if (!finished) return;
    history.replaceState(null, "", location.pathname); // the page opens anew, on the results
    location.reload();
  }, [finished]);
  return (
    <Answered query={query} what="reading losses">
      {({ runs }) => (runs.length ? <Losses runs={runs} /> : <Waiting what="waiting for the first losses" />)}
    </Answered>
  );
}

function Losses({ runs }: Pick<Answer, "runs">) {
  const last = Math.max(...runs.map(({ steps }) => steps));
  const x = [...new Set([...runs.flatMap(({ losses }) => losses.map(([step]) => step)), last])].sort((a, b) => a - b);
  const schemes = [...new Set(runs.map(({ scheme }) => scheme))];
  const curves = runs.map(({ scheme, seed, losses }): Curve => {
    const known = new Map(losses.map(([step, loss]) => [step, loss]));
    return {
      ...look(schemes.indexOf(scheme)),
      name: `${scheme}, seed ${seed}`,
      values: x.map((step) => known.get(step) ?? null),
    };
  });
  const done = runs.filter(({ steps, losses }) => losses.at(-1)?.[0] === steps).length;
  const steps = runs.map(({ losses }) => losses.at(-1)![0]);
  return (
    <LineFigure
      title="Loss of each run"
      x={x}
      curves={curves}
      xLabel="step"
      yLabel="cross-entropy, nats"
      height={420}
      note={`${whole(Math.max(...steps))} of ${whole(last)} steps; ${done} of the ${runs.length} runs that have begun are finished. The results open here when all are.`}
      how="Cross-entropy of one random batch, about fifty times in a run. Runs that train on other machines come when they are finished."
    />
  );
}
