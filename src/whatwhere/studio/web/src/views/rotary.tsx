/** The rotary lab: the rotations of the pairs of two configurations, and their agreement by distance. */

import { useQuery, useView } from "../hooks";
import { formatNumber, whole } from "../numbers";
import { Choice, Parameters, Slider, withParameter } from "../parts/controls";
import { Answered, Wrong } from "../parts/states";
import { register } from "../register";
import type { Tensor } from "../wire";
import type { PairRotations, RotaryLab } from "../types";
import { Agreement, Slowdown, Wavelengths } from "./rotary/figures";

const SIDES = ["a", "b"] as const;

register({
  id: "rotary",
  title: "Rotary lab",
  question:
    "How many rotations does each pair make within the trained and the claimed length, and what does a scaling change?",
  defaults: () => ({ a: "", b: "", claimed: 0 }),
  Page: Rotary,
});

function Rotary() {
  const query = useQuery("rotary.lab", useView().settings);
  return (
    <Answered query={query} what="rotating pairs">
      {(lab) => (
        <>
          <p class="note">
            {lab.missing === null
              ? "The lab begins with this model’s own parameters."
              : `The open model has no rotary: ${lab.missing}. The lab begins with a plain one.`}
          </p>
          <div class="pair">
            <Configuration side={0} lab={lab} />
            <Configuration side={1} lab={lab} />
          </div>
          <div class="wide">
            <Slider
              label="length of the text"
              help="the length at which both are compared"
              name="claimed"
              value={lab.claimed}
              low={32}
              high={1 << 24}
              base={2}
              steps={2}
              set={(claimed) => ({ claimed: Math.round(claimed) })}
            />
          </div>
          <Wavelengths lab={lab} />
          <div class="pair">
            <Slowdown lab={lab} />
            <Agreement lab={lab} />
          </div>
        </>
      )}
    </Answered>
  );
}

function Configuration({ side, lab }: { side: 0 | 1; lab: RotaryLab }) {
  const { settings, change } = useView<Record<"a" | "b", string>>();
  const of = lab.sides[side];
  const setting = SIDES[side];
  const text = settings[setting];
  const row = lab.scalings[of.scaling];
  const name = setting.toUpperCase();
  return (
    <section class="configuration" aria-label={`Configuration ${name}`}>
      <h2>
        {name} <small>{text ? `${of.preset.title}, changed` : of.preset.title}</small>
      </h2>
      <div class="controls">
        <Choice
          label="preset"
          name={setting}
          value={of.preset.name}
          options={lab.presets.map((preset) => [preset.name, preset.title] as const)}
          set={(preset) => ({ [setting]: `from=${preset}` })}
        />
        <Choice
          label="scaling"
          name={setting}
          value={of.scaling}
          options={Object.keys(lab.scalings)}
          set={(scaling) => ({ [setting]: withParameter(text, "scaling", scaling) })}
        />
        <button type="button" disabled={!text} onClick={() => change({ [setting]: "" })}>
          Reset {name}
        </button>
      </div>
      <Parameters of={of.parameters} name={setting} />
      {row && (
        <p class="note">
          {row.formula} (<a href={row.url}>{row.paper}</a>)
          {of.scaling === "longrope" &&
            (of.preset.lists
              ? "; the factors of each pair are this model’s own"
              : "; instead of searched factors, these rise evenly from 1 to the factor")}
        </p>
      )}
      {of.problem !== null && <Wrong message={of.problem} />}
      {of.rotations && <Facts of={of.rotations} lengths={of.preset.lengths} claimed={whole(lab.claimed)} />}
    </section>
  );
}

function Facts({ of, lengths, claimed }: { of: PairRotations; lengths: string; claimed: string }) {
  const { partial, unseen, constant, rotations_claimed } = of.spectrum;
  const count = ({ values }: Tensor, right: (value: number) => boolean = Boolean) =>
    Array.from(values).filter(right).length;
  return (
    <ul class="facts">
      <li>
        <b>
          {count(partial)} of {partial.values.length}
        </b>{" "}
        pairs make no full rotation in the trained {whole(of.trained)}
      </li>
      <li>
        <b>{count(unseen)}</b> of these reach angles at {claimed} that training never did
      </li>
      <li>
        <b>{count(rotations_claimed, (turns) => turns < 1)}</b> make no full rotation in {claimed}
        {count(constant) > 0 && `; ${count(constant)} never rotate`}
      </li>
      {of.magnitude !== 1 && (
        <li>
          queries and keys times <b>{formatNumber(of.magnitude, 4)}</b>
        </li>
      )}
      {of.follows_length && <li>the frequencies follow the length; shown are those of a text of {claimed}</li>}
      {lengths && <li>{lengths}</li>}
    </ul>
  );
}
