/** A named set of tokens: the field that names them, and what is found about their groups. */

import { useEffect, useState } from "preact/hooks";
import { visible } from "../../escape";
import { useView } from "../../hooks";
import { fixed } from "../../numbers";
import type { NamedTokens } from "../../types";

export function NamedField() {
  const { about, settings, change } = useView<{ tokens: string }>();
  const { method = "pca", example: given = "" } = about.begin["map"] ?? {};
  const { tokens: value } = settings;
  const example = String(given);
  const choose = (tokens: string) =>
    change({ tokens, token: "", box: "", only: "", find: "", method: tokens ? "pca" : method });
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return (
    <form
      class="controls named"
      onSubmit={(event) => {
        event.preventDefault();
        choose(typed.trim());
      }}
    >
      <div class="field wide">
        <label for="named-tokens">Only these tokens: commas between tokens, semicolons between groups</label>
        <input
          id="named-tokens"
          type="text"
          class="main"
          spellcheck={false}
          autocomplete="off"
          maxLength={20000}
          placeholder="king, queen, man, woman"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </div>
      <button type="submit">Draw these</button>
      {example !== "" && example !== value && (
        <button type="button" onClick={() => choose(example)}>
          Example:{" "}
          {example
            .split(";")
            .map((part) => part.split(":")[0]!.trim())
            .join(", ")}
        </button>
      )}
      {value !== "" && (
        <button type="button" onClick={() => choose("")}>
          All tokens
        </button>
      )}
    </form>
  );
}

/** Shows how many of the tokens have their nearest neighbor of the set in their own group. */
export function NamedFacts({ named }: { named: NamedTokens }) {
  const { missing, group_names } = named;
  const { stay, compared, within, between } = named.neighbors;
  const range = ([low, high]: readonly [number, number]) => `${fixed(low, 2)} to ${fixed(high, 2)}`;
  const nearest = Array.from(named.neighbors.cosines.values);
  return (
    <>
      {group_names.length > 1 && compared > 0 && (
        <p class="answer">
          <b>
            {stay} of {compared}
          </b>{" "}
          tokens have their nearest neighbor of this set, by cosine, in their own group.
        </p>
      )}
      <p>
        Cosine to the nearest: {range([Math.min(...nearest), Math.max(...nearest)])}.
        {within && group_names.length > 1 && ` Of all pairs within a group: ${range(within)}.`}
        {between && ` Between groups: ${range(between)}.`}
      </p>
      {missing.length > 0 && (
        <p>
          Not drawn, for these are no single tokens here:{" "}
          {missing.map(({ text, reason }, n) => (
            <span key={n}>
              {n > 0 && "; "}
              <b>{visible(text)}</b> ({visible(reason)})
            </span>
          ))}
        </p>
      )}
    </>
  );
}
