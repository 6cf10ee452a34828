/** Biases: what positions add to attention scores, as a matrix and as curves, and each head's range. */

import { useQuery } from "../hooks";
import { Choice, Flag } from "../parts/choice";
import { HeadSlider, HeadsSlider, Parameters, Slider, withParameter } from "../parts/slider";
import { Answered } from "../parts/states";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import { type BiasProps, CurvesOf, Matrix, Ranges } from "./biases/figures";

const DEFAULTS: Settings = {
  scheme: "",
  options: "",
  heads: 8,
  head: 0,
  tokens: 64,
  weights: false,
  share: "0.01",
  seed: 0,
  log: true,
  all: false,
};

register({
  id: "biases",
  title: "Biases",
  question: "What do positions add to the attention scores, and what is the effective range of each head?",
  defaults: () => DEFAULTS,
  Page: Biases,
});

function Biases({ settings, change }: ViewProps) {
  const { log: _log, all: _all, ...query } = settings;
  const answer = useQuery("biases.shown", query);
  return (
    <Answered query={answer} what="reading biases">
      {(bias) => <BiasOf bias={bias} settings={settings} change={change} />}
    </Answered>
  );
}

function BiasOf({ bias, settings, change }: BiasProps) {
  const row = bias.choices.find(({ name }) => name === bias.scheme);
  const own = bias.scheme.startsWith("own-");
  const setting = (name: string) => (value: number, now: boolean) => change({ [name]: value }, now);
  return (
    <>
      {bias.missing !== null && (
        <p class="note">The open model has no bias: {bias.missing}. Shown are schemes of the catalogue.</p>
      )}
      {bias.unavailable.map(({ title, missing }) => (
        <p key={title} class="note">
          Not shown is {title}: {missing}.
        </p>
      ))}
      <div class="controls">
        <Choice
          label="bias"
          value={bias.scheme}
          options={bias.choices.map(({ name, title }) => [name, title] as const)}
          change={(scheme) => change({ scheme, options: "", head: 0 })}
        />
        <Flag
          label="as weights, exp(bias)"
          value={settings["weights"] === true}
          change={(weights) => change({ weights })}
        />
        {bias.random && (
          <button type="button" onClick={() => change({ seed: Number(settings["seed"]) + 1 })}>
            Sample again
          </button>
        )}
      </div>
      <p class="note">
        {row?.formula || bias.repr}
        {row?.url && (
          <>
            {" "}
            (<a href={row.url}>source</a>)
          </>
        )}
        {bias.tensor && (
          <>
            {" "}
            with the learned table <code>{bias.tensor}</code>
          </>
        )}
        {bias.random && "; its parameters are random"}
      </p>
      <div class="pair">
        <div>
          <HeadSlider value={bias.head} heads={bias.heads} change={setting("head")} />
          {!own && <HeadsSlider value={bias.heads} high={64} change={setting("heads")} />}
          <Slider
            label="tokens of the matrix"
            value={Number(settings["tokens"])}
            low={8}
            high={256}
            base={2}
            steps={2}
            whole
            change={setting("tokens")}
          />
        </div>
        <Parameters
          of={bias.parameters}
          set={(name, value, now) => change({ options: withParameter(String(settings["options"]), name, value) }, now)}
        />
      </div>
      <div class="two">
        <Matrix bias={bias} weights={settings["weights"] === true} />
        <CurvesOf bias={bias} settings={settings} change={change} />
      </div>
      <Ranges bias={bias} settings={settings} change={change} />
    </>
  );
}
