/** The view Ask: what the models of a comparison answer to a text, with positions changed by hand, and their attention. */

import { useQuery, useView } from "../hooks";
import { Choice, type Option } from "../parts/controls";
import { TextField } from "../parts/field";
import { Answered } from "../parts/states";
import { TokenLabel } from "../parts/token";
import { register } from "../register";
import type { AskedRuns } from "../types";
import { Answering } from "./ask/answers";
import { Heads } from "./ask/heads";

register({
  id: "ask",
  title: "Ask",
  question: "What do the trained models answer to a question, what does each head attend to, and do positions matter?",
  defaults: (about) => ({ text: "", seeds: "median", positions: "", ...about.begin["ask"] }),
  byRun: true,
  Page: Ask,
});

function Ask() {
  const { about, settings, change } = useView<Record<"text" | "seeds" | "run" | "positions", string>>();
  const { text, seeds, run, positions } = settings;
  const empty = text.trim() === "";
  const asked = useQuery("ask.answers", empty ? null : { text, positions, seeds });
  const heads = useQuery("ask.attention", empty ? null : { text, positions, run });
  const known = (asked.answer?.seeds ?? []).map((seed): Option => [String(seed), `seed ${seed}`]);
  return (
    <>
      <div class="controls" role="search">
        <TextField
          label="Question"
          hint="a sequence of the task, Ctrl+K"
          name="text"
          set={(next) => ({ text: next, positions: "" })}
        />
        {!about.exported && (
          <Choice
            label="runs"
            name="seeds"
            options={[["median", "of each scheme the median"], ["all", "all"], ...known]}
          />
        )}
        {positions !== "" && (
          <button type="button" onClick={() => change({ positions: "" })}>
            Reset positions
          </button>
        )}
      </div>
      {empty ? (
        <p class="lead">Type a question above.</p>
      ) : (
        <>
          <Answered query={asked} what="asking the models">
            {(answer) => (
              <>
                <Positions asked={answer} />
                <Answering asked={answer} text={text} />
              </>
            )}
          </Answered>
          {asked.problem === null && (
            <Answered query={heads} what="reading the attention">
              {(answer) => <Heads attention={answer} text={text} />}
            </Answered>
          )}
        </>
      )}
    </>
  );
}

/** The tokens, and below each its position, which may be changed. */
function Positions({ asked }: { asked: AskedRuns }) {
  const { change } = useView();
  const { tokens, usual, positions, at, trained, correct } = asked;
  const set = (slot: number, written: string) => {
    if (!/^\d{1,7}$/.test(written)) return; // half typed
    const next = positions.map((position, n) => (n === slot ? Number(written) : position));
    change({ positions: next.every((position, n) => position === usual[n]) ? "" : next.join(",") }, true);
  };
  const longest = trained[trained.length - 1] ?? 0;
  const length =
    tokens.length > longest
      ? `${tokens.length} tokens, longer than any in training (${longest})`
      : `${tokens.length} tokens; trained with up to ${longest}`;
  return (
    <>
      <ol class="moved" aria-label="Tokens and their positions">
        {tokens.map((token, n) => (
          <li key={n} class={n === at ? "here" : undefined}>
            <TokenLabel word={token} />
            <input
              type="number"
              min={0}
              max={1_000_000}
              value={positions[n]}
              class={positions[n] === usual[n] ? undefined : "changed"}
              aria-label={`position of token ${n}, ${token}`}
              onInput={(event) => set(n, event.currentTarget.value)}
            />
          </li>
        ))}
      </ol>
      <p class="note">
        {length}. {correct === null ? "The task knows no correct answer to it." : `Correct is ${correct}.`}
        {at !== null && ` The answer is read at token ${at}, which is marked.`} The numbers are positions: change one,
        and the models are asked again. The mask follows the order of the tokens, whatever their positions.
      </p>
    </>
  );
}
