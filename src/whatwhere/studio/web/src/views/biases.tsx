/** Biases: what positions add to attention scores, as a matrix and as curves, and each head's range. */

import { useQuery, useView } from "../hooks";
import { Choice, Flag, Parameters, Slider } from "../parts/controls";
import { Answered } from "../parts/states";
import { register } from "../register";
import type { BiasFindings } from "../types";
import { type BiasSettings, CurvesOf, Matrix, Ranges } from "./biases/figures";

register({
  id: "biases",
  title: "Biases",
  question: "What do positions add to the attention scores, and what is the effective range of each head?",
  defaults: () => ({
    ...{ scheme: "", options: "", heads: 8, head: 0, tokens: 64 },
    ...{ weights: false, share: "0.01", seed: 0, log: true, all: false },
  }),
  Page: Biases,
});

function Biases() {
  const { log: _log, all: _all, ...query } = useView().settings;
  return (
    <Answered query={useQuery("biases.shown", query)} what="reading biases">
      {(bias) => <BiasOf bias={bias} />}
    </Answered>
  );
}

function BiasOf({ bias }: { bias: BiasFindings }) {
  const { settings, change } = useView<BiasSettings>();
  const row = bias.choices.find(({ name }) => name === bias.scheme);
  const own = bias.scheme.startsWith("own-");
  return (
    <>
      {bias.missing !== null && (
        <p class="note">The open model has no bias: {bias.missing}. Shown are schemes of the catalogue.</p>
      )}
      {Object.entries(bias.unavailable).map(([title, missing]) => (
        <p key={title} class="note">
          Not shown is {title}: {missing}.
        </p>
      ))}
      <div class="controls">
        <Choice
          label="bias"
          name="scheme"
          value={bias.scheme}
          options={bias.choices.map(({ name, title }) => [name, title] as const)}
          set={(scheme) => ({ scheme, options: "", head: 0 })}
        />
        <Flag label="as weights, exp(bias)" name="weights" />
        {bias.random && (
          <button type="button" onClick={() => change({ seed: settings.seed + 1 })}>
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
          <Slider
            label="head"
            help="of biases, counted from 0"
            name="head"
            value={bias.head}
            high={Math.max(bias.heads - 1, 1)}
          />
          {!own && (
            <Slider
              label="heads"
              help="of the schemes of the catalogue"
              name="heads"
              value={bias.heads}
              low={1}
              high={64}
            />
          )}
          <Slider label="tokens of the matrix" name="tokens" low={8} high={256} base={2} steps={2} />
        </div>
        <Parameters of={bias.parameters} name="options" />
      </div>
      <div class="two">
        <Matrix bias={bias} />
        <CurvesOf bias={bias} />
      </div>
      <Ranges bias={bias} />
    </>
  );
}
