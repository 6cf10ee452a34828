/** The pipeline: a text of the reader's through the input layer, step by step. */

import { upTo } from "../numbers";
import { shownTokens } from "../escape";
import { type Query, useInSight, useQuery, useView } from "../hooks";
import { announce, Answered } from "../parts/states";
import { Choice, Flag, Folded } from "../parts/controls";
import { TextField, TokenLabel } from "../parts/field";
import { SchemeChoice, SchemeFacts, useCatalogue } from "../parts/scheme";
import type { FirstTokens, TextWalkthrough } from "../types";
import { Equation } from "./pipeline/equation";
import { BiasStep, RotationStep, ScoreStep } from "./pipeline/scores";
import { doorName, PositionsStep, RowsStep, type StepId, STEPS, SumStep, TokensStep } from "./pipeline/steps";
import "./pipeline.css";

type Choices = Record<"text" | "tokens" | "scheme", string> &
  Record<"head" | "dim" | "heads" | "seed" | "at" | "other", number> & { causal: boolean; step: StepId };

export function Pipeline() {
  const { about, settings } = useView<Choices>();
  const { text, tokens, scheme, head, causal, dim, heads, seed } = settings;
  const empty = text.trim() === "";
  const read = useQuery("pipeline.read", empty ? null : { text, tokens });
  const walk = useQuery("pipeline.walk", empty ? null : { text, tokens, scheme, head, causal, dim, heads, seed });
  return (
    <>
      {!about.exported && (
        <div class="controls" role="search">
          <TextField label="Text" hint="any text, Ctrl+K" name="text" />
          <Folded title="tokens, positions, mask">
            {about.tables.input && (
              <Choice
                label="what"
                name="tokens"
                options={[
                  ["loaded", about.kind === "fresh" ? "the 20 tokens of expressions" : "the tokens of what is open"],
                  ["words", "the words of the text, fresh rows"],
                ]}
                set={(tokens) => ({ tokens, head: 0 })}
              />
            )}
            <SchemeChoice also={{ head: 0, pair: 0 }} />
            {tokens === "words" && <Choice label="features" name="dim" options={[[0, "as open"], 8, 16, 32, 64]} />}
            {useCatalogue() && (
              <Choice
                label="heads"
                name="heads"
                options={[[0, "as open"], 1, 2, 4, 8]}
                set={(heads) => ({ heads, head: 0 })}
              />
            )}
            <Flag label="causal mask" name="causal" />
          </Folded>
        </div>
      )}
      {empty ? (
        <p class="lead">Type a text above.</p>
      ) : (
        <Answered query={read} what="splitting the text">
          {(answer) => <Steps read={answer} walk={walk} />}
        </Answered>
      )}
    </>
  );
}

const PANELS = {
  rows: RowsStep,
  positions: PositionsStep,
  sum: SumStep,
  rotation: RotationStep,
  bias: BiasStep,
  score: ScoreStep,
};

function Steps({ read, walk }: { read: FirstTokens; walk: Query<TextWalkthrough> }) {
  const { settings, change } = useView<Choices>();
  const count = read.words.length;
  const inside = (number: number, count: number) => Math.min(Math.max(Math.trunc(number), 0), Math.max(count - 1, 0));
  const [at, other] = [inside(settings.at, count), inside(settings.other, count)];
  const step = STEPS.find(({ id }) => id === settings.step) ?? STEPS[0];
  const go = (next: StepId) => {
    change({ step: next });
    const number = STEPS.findIndex(({ id }) => id === next);
    announce(`step ${number + 1}, ${STEPS[number]!.title}`);
  };
  const past = walk.answer?.words.length === count ? walk.answer : null;
  const Panel = step.id === "tokens" ? null : PANELS[step.id];
  return (
    <>
      <ol class="chips" aria-label="Tokens of the text: the one that is followed">
        {read.words.map((word, n) => (
          <li key={n}>
            <button type="button" class="chip" aria-pressed={n === at} onClick={() => change({ at: n })}>
              <TokenLabel word={word} text={read.texts[n]} />
              <small>{n}</small>
            </button>
          </li>
        ))}
      </ol>
      {past && <Equation walk={past} at={at} other={other} step={step.id} go={go} />}
      <Ways step={step.id} walk={past} go={go} />
      <section class="step" aria-label={step.title}>
        {Panel === null ? (
          <TokensStep read={read} />
        ) : (
          <Answered query={walk} what="following the text">
            {(answer) => {
              const { length } = answer.words;
              return (
                <>
                  {["rotation", "bias", "score"].includes(step.id) && <Pairing walk={answer} />}
                  <Panel walk={answer} at={inside(at, length)} other={inside(other, length)} />
                </>
              );
            }}
          </Answered>
        )}
      </section>
      {past && <SchemeFacts of={past} />}
    </>
  );
}

function Pairing({ walk }: { walk: TextWalkthrough }) {
  const keys = shownTokens(walk).map((name, n) => [n, `“${name}” at ${n}`] as const);
  return (
    <p class="pairing">
      <Choice label="head" name="head" value={walk.head} options={upTo(walk.num_heads)} />
      <Choice label="key" name="other" options={keys} />
    </p>
  );
}

const DOORS: Partial<Record<StepId, "input" | "query_key" | "score">> = {
  positions: "input",
  rotation: "query_key",
  bias: "score",
};

/** The steps in a row; one that this scheme does not have is marked. */
function Ways({ step, walk, go }: { step: StepId; walk: TextWalkthrough | null; go(step: StepId): void }) {
  const number = STEPS.findIndex(({ id }) => id === step);
  const list = useInSight<HTMLOListElement>("[aria-current]", step);
  const idle = (id: StepId) => walk !== null && id in DOORS && doorName(walk, DOORS[id]!) === null;
  return (
    <div class="ways">
      <button type="button" disabled={number === 0} onClick={() => go(STEPS[number - 1]!.id)}>
        Back
      </button>
      <ol aria-label="Steps" ref={list}>
        {STEPS.map(({ id, title }, n) => (
          <li key={id}>
            <button
              type="button"
              aria-current={id === step ? "step" : undefined}
              class={idle(id) ? "idle" : undefined}
              title={idle(id) ? "nothing happens here with this scheme" : undefined}
              onClick={() => go(id)}
            >
              {n + 1} {title}
              {idle(id) && <span class="unseen">, nothing happens here</span>}
            </button>
          </li>
        ))}
      </ol>
      <button type="button" disabled={number === STEPS.length - 1} onClick={() => go(STEPS[number + 1]!.id)}>
        Next
      </button>
    </div>
  );
}
