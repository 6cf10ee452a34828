/** The pipeline: a text of the reader's through the input layer, step by step. */

import { type Query, useQuery } from "../hooks";
import { announce } from "../parts/announce";
import { Choice, Flag, SizeChoice } from "../parts/choice";
import { SchemeChoice, SchemeFacts } from "../parts/scheme";
import { Answered } from "../parts/states";
import { TextField } from "../parts/text_field";
import { TokenLabel } from "../parts/token";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { About, TextTokens, TextWalkthrough } from "../types";
import { Equation } from "./pipeline/equation";
import { BiasStep, HeadChoice, RotationStep, ScoreStep } from "./pipeline/scores";
import { RowsStep, TokensStep } from "./pipeline/steps";
import { doorName, faces, type StepId, STEPS } from "./pipeline/walk";
import "./pipeline.css";

register({
  id: "pipeline",
  title: "Pipeline",
  question: "How does a text become vectors and attention scores: its tokens, ids and rows, and its positions?",
  defaults,
  byRun: true,
  Page: Pipeline,
});

function defaults(about: About): Settings {
  return { ...about.begin["pipeline"], step: "tokens", at: 2, other: 1, pair: 0 };
}

function Pipeline({ about, settings, change }: ViewProps) {
  const { text, tokens } = { text: String(settings["text"]), tokens: String(settings["tokens"]) };
  const empty = text.trim() === "";
  const read = useQuery("pipeline.read", empty ? null : { text, tokens });
  const { scheme, head, causal, dim, heads, seed } = settings as Record<string, string | number | boolean>;
  const query = { text, tokens, scheme, head, causal, dim, heads, seed } as Settings;
  const walk = useQuery("pipeline.walk", empty ? null : query);
  return (
    <>
      <div class="controls" role="search">
        <TextField label="Text" hint="any text, Ctrl+K" value={text} choose={(next) => change({ text: next }, true)} />
        {about.tables.input && (
          <Choice
            label="what"
            value={tokens}
            options={[
              ["loaded", about.kind === "fresh" ? "the 20 tokens of expressions" : "the tokens of what is open"],
              ["words", "the words of the text, fresh rows"],
            ]}
            change={(tokens) => change({ tokens, head: 0 })}
          />
        )}
        <SchemeChoice about={about} settings={settings} change={(some) => change({ ...some, head: 0, pair: 0 })} />
        {tokens === "words" && (
          <SizeChoice
            label="features"
            value={Number(dim)}
            sizes={[8, 16, 32, 64]}
            change={(dim) => change({ dim })}
            usual="as open"
          />
        )}
        {scheme !== "model" && !about.runs.includes(String(scheme)) && (
          <SizeChoice
            label="heads"
            value={Number(heads)}
            sizes={[1, 2, 4, 8]}
            change={(heads) => change({ heads, head: 0 })}
            usual="as open"
          />
        )}
        <Flag label="causal mask" value={causal === true} change={(causal) => change({ causal })} />
      </div>
      {empty ? (
        <p class="lead">Type a text above.</p>
      ) : (
        <Answered query={read} what="splitting the text">
          {(answer) => <Steps about={about} read={answer} walk={walk} settings={settings} change={change} />}
        </Answered>
      )}
    </>
  );
}

interface StepsProps extends Pick<ViewProps, "about" | "settings" | "change"> {
  read: TextTokens;
  walk: Query<TextWalkthrough>;
}

function Steps({ about, read, walk, settings, change }: StepsProps) {
  const count = read.words.length;
  const at = inside(Number(settings["at"]), count);
  const other = inside(Number(settings["other"]), count);
  const number = Math.max(
    STEPS.findIndex(({ id }) => id === settings["step"]),
    0,
  );
  const step = STEPS[number]!.id;
  const go = (next: StepId) => {
    change({ step: next });
    announce(`step ${STEPS.findIndex(({ id }) => id === next) + 1}, ${STEPS.find(({ id }) => id === next)!.title}`);
  };
  const past = walk.answer?.words.length === count ? walk.answer : null;
  return (
    <>
      <Chips read={read} at={at} choose={(n) => change({ at: n })} />
      {past && <Equation walk={past} at={at} other={other} step={step} go={go} />}
      <Ways step={step} walk={past} go={go} />
      <section class="step" aria-label={STEPS[number]!.title}>
        {number < 2 ? (
          <TokensStep
            read={read}
            text={String(settings["text"])}
            numbered={step === "ids"}
            own={settings["tokens"] === "loaded" && about.tokenizer}
          />
        ) : (
          <Answered query={walk} what="following the text">
            {(answer) => (
              <>
                {number > 4 && (
                  <p class="pairing">
                    <HeadChoice walk={answer} change={change} />
                    <KeyChoice walk={answer} other={inside(other, answer.words.length)} change={change} />
                  </p>
                )}
                <Panel
                  step={step}
                  walk={answer}
                  at={inside(at, answer.words.length)}
                  other={inside(other, answer.words.length)}
                  settings={settings}
                  change={change}
                />
              </>
            )}
          </Answered>
        )}
      </section>
      {past && <SchemeFacts title={past.title} doors={past.doors} notes={past.notes} />}
    </>
  );
}

function inside(number: number, count: number): number {
  return Math.min(Math.max(Math.trunc(number), 0), Math.max(count - 1, 0));
}

interface PanelProps {
  step: StepId;
  walk: TextWalkthrough;
  at: number;
  other: number;
  settings: Settings;
  change: ViewProps["change"];
}

function Panel(props: PanelProps) {
  const { step, walk, at } = props;
  if (step === "rotation") return <RotationStep {...props} />;
  if (step === "bias") return <BiasStep {...props} />;
  if (step === "score") return <ScoreStep {...props} />;
  return <RowsStep walk={walk} at={at} which={step === "rows" || step === "positions" ? step : "sum"} />;
}

function Chips({ read, at, choose }: { read: TextTokens; at: number; choose(n: number): void }) {
  return (
    <ol class="chips" aria-label="Tokens of the text: the one that is followed">
      {read.words.map((word, n) => (
        <li key={n}>
          <button type="button" class="chip" aria-pressed={n === at} onClick={() => choose(n)}>
            <TokenLabel word={word} text={read.texts[n] ?? null} />
            <small>{n}</small>
          </button>
        </li>
      ))}
    </ol>
  );
}

function KeyChoice({ walk, other, change }: { walk: TextWalkthrough; other: number; change: ViewProps["change"] }) {
  return (
    <label class="choice">
      key{" "}
      <select value={String(other)} onChange={(event) => change({ other: Number(event.currentTarget.value) })}>
        {faces(walk).map((name, n) => (
          <option key={n} value={String(n)}>
            {n}: {name}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The steps in a row; one that this scheme does not have is marked. */
function Ways({ step, walk, go }: { step: StepId; walk: TextWalkthrough | null; go(step: StepId): void }) {
  const number = STEPS.findIndex(({ id }) => id === step);
  const idle = (id: StepId) => {
    const door = ({ positions: "input", rotation: "query_key", bias: "score" } as const)[id as "positions"];
    return door !== undefined && walk !== null && doorName(walk, door) === null;
  };
  return (
    <div class="ways">
      <button type="button" disabled={number === 0} onClick={() => go(STEPS[number - 1]!.id)}>
        Back
      </button>
      <ol aria-label="Steps">
        {STEPS.map(({ id, title }, n) => (
          <li key={id}>
            <button
              type="button"
              aria-current={id === step ? "step" : undefined}
              class={idle(id) ? "idle" : undefined}
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
