/** Which run is watched: one of a comparison's folder, or one that is trained here and now. */

import { type Query, useQuery } from "../../hooks";
import { announce } from "../../parts/announce";
import { JobProgress } from "../../parts/progress";
import { Wrong } from "../../parts/states";
import type { ViewProps } from "../../register";
import type { Settings } from "../../source";
import type { About, Answers, Trained } from "../../types";
import { useJob } from "../../jobs";

/** Return the Python that reads a run of the open folder; one that was trained here is in no folder. */
export function runCode(run: string): string {
  const file = JSON.stringify(`models/${run}.safetensors`);
  return `results = ww.comparison.read_results(PATH)\nrun = next(run for run in results.runs if run.file == ${file})`;
}

/** Settings that both views have: what is watched. */
export function runDefaults(about: About): Settings {
  return { run: about.run, scheme: "rotary", steps: 200, seed: 0 };
}

interface Watched<N extends keyof Answers> {
  query: Query<Answers[N]>;
  /** Of a run that was trained here: its scores. */
  trained: Trained | null;
  choice: preact.ComponentChildren;
}

/**
 * Return the query of the chosen run, and the control that chooses another.
 *
 * `ofTrained` takes the same answer from a run that was trained here.
 */
export function useRun<N extends "replay.frames" | "replay.attention">(
  { about, settings, change }: ViewProps,
  name: N,
  ofTrained: (trained: Trained) => Answers[N],
): Watched<N> {
  const kept = about.kind === "results";
  const listed = useQuery("replay.runs", kept ? null : {});
  const run = String(settings["run"]);
  const query = useQuery(name, kept ? { run } : null);
  const [scheme, steps, seed] = [String(settings["scheme"]), Number(settings["steps"]), Number(settings["seed"])];
  const job = useJob("replay.train", kept ? null : { scheme, steps, seed });
  if (kept) {
    return { query, trained: null, choice: null };
  }
  const running = job.state === "running";
  const choice = (
    <>
      <p class="note">
        A small Transformer of two layers is trained here, in memory, to answer expressions such as Max(1,6,2): for as
        long as it takes to watch. Nothing is written.
      </p>
      <div class="controls">
        <label class="choice">
          scheme{" "}
          <select value={scheme} disabled={running} onChange={(event) => change({ scheme: event.currentTarget.value })}>
            {[...new Set([scheme, ...(listed.answer?.schemes ?? [])])].sort().map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label class="choice">
          steps{" "}
          <select
            value={String(steps)}
            disabled={running}
            onChange={(event) => change({ steps: Number(event.currentTarget.value) })}
          >
            {[...new Set([steps, ...(listed.answer?.steps ?? [])])]
              .sort((a, b) => a - b)
              .map((each) => (
                <option key={each}>{each}</option>
              ))}
          </select>
        </label>
        <label class="choice">
          seed{" "}
          <select
            value={String(seed)}
            disabled={running}
            onChange={(event) => change({ seed: Number(event.currentTarget.value) })}
          >
            {Array.from({ length: 10 }, (_, each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        {!running && !job.answer && (
          <button
            type="button"
            class="train"
            onClick={() => {
              job.start();
              announce("training");
            }}
          >
            Train it
          </button>
        )}
      </div>
      <JobProgress job={job} what={`Training ${scheme}`} stop={job.stop} />
      {job.problem !== null && <Wrong message={job.problem} />}
    </>
  );
  const answer = job.answer && ofTrained(job.answer);
  return { query: { answer, problem: null, busy: false }, trained: job.answer, choice };
}
