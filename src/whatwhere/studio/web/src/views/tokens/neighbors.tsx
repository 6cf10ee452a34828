/** Lists of nearest tokens side by side, each with a bar for its cosine. */

import { seriesColor } from "../../colors";
import { fixed, formatNumber } from "../../numbers";
import { barListsSvg } from "../../parts/bars";
import type { Column } from "../../parts/table";
import { TokenLabel } from "../../parts/token";
import { face, visibleToken } from "../../escape";
import type { NeighborList, TokenNeighbors } from "../../types";

export interface NearRow {
  list: NeighborList;
  rank: number;
}

export function tableName(which: string): string {
  return which === "output" ? "output projection" : "token table";
}

function heading(list: NeighborList): string {
  return `${tableName(list.table)}, ${list.centered ? "centered" : "as it is"}`;
}

export function NeighborLists({ near, link }: { near: TokenNeighbors; link(number: number): string }) {
  const everywhere = shared(near);
  return (
    <>
      <div class="lists">
        {near.lists.map((list, k) => (
          <section key={heading(list)} aria-label={heading(list)}>
            <h4>{heading(list)}</h4>
            <ol class="bars">
              {list.words.map((word, n) => {
                const number = list.ids.values[n]!;
                const cosine = list.cosines.values[n]!;
                return (
                  <li key={number}>
                    <span class="name">
                      <TokenLabel word={word} text={list.texts[n] ?? null} href={link(number)} />
                    </span>
                    <span class="track" aria-hidden="true">
                      <i
                        style={{
                          width: `${100 * Math.max(0, Math.min(1, cosine))}%`,
                          background: `var(--c${k % 2 ? 1 : 2})`,
                        }}
                      />
                    </span>
                    <span class="value">{fixed(cosine, 3)}</span>
                    <span class="mark" title={everywhere.has(number) ? "in every list" : "not in every list"}>
                      {everywhere.has(number) ? "" : "◦"}
                    </span>
                  </li>
                );
              })}
            </ol>
          </section>
        ))}
      </div>
      {near.lists.length > 1 && (
        <p class="note">
          {everywhere.size} of {near.lists[0]?.words.length ?? 0} are in every list; ◦ marks those that are not.
        </p>
      )}
    </>
  );
}

/** Return the ids that are in every list. */
function shared({ lists }: TokenNeighbors): Set<number> {
  const [first, ...rest] = lists.map((list) => new Set<number>(list.ids.values));
  return new Set([...(first ?? [])].filter((id) => rest.every((list) => list.has(id))));
}

export function nearRows(near: TokenNeighbors): NearRow[] {
  return near.lists.flatMap((list) => list.words.map((_, rank) => ({ list, rank })));
}

export function nearColumns(link: (number: number) => string): Column<NearRow>[] {
  const number = ({ list, rank }: NearRow) => list.ids.values[rank]!;
  return [
    { title: "list", value: ({ list }) => heading(list) },
    { title: "rank", numeric: true, value: ({ rank }) => rank + 1 },
    {
      title: "token",
      value: ({ list, rank }) => visibleToken(list.words[rank]!),
      cell: (row) => (
        <TokenLabel word={row.list.words[row.rank]!} text={row.list.texts[row.rank] ?? null} href={link(number(row))} />
      ),
    },
    { title: "id", numeric: true, value: number },
    { title: "type", value: ({ list, rank }) => list.kinds[rank] ?? "" },
    {
      title: "cosine",
      numeric: true,
      value: ({ list, rank }) => list.cosines.values[rank]!,
      cell: ({ list, rank }) => fixed(list.cosines.values[rank]!, 4),
    },
    {
      title: "norm",
      numeric: true,
      value: ({ list, rank }) => list.norms.values[rank]!,
      cell: ({ list, rank }) => formatNumber(list.norms.values[rank]),
    },
  ];
}

export function neighborsSvg(near: TokenNeighbors, width = 300 * near.lists.length + 16): string {
  const lists = near.lists.map((list) => ({
    heading: heading(list),
    rows: list.words.map((word, n) => ({
      name: visibleToken(face(word, list.texts[n] ?? null)),
      shares: [list.cosines.values[n]!],
      text: fixed(list.cosines.values[n]!, 3),
    })),
  }));
  const colors = lists.map((_, k) => seriesColor(k % 2 ? 1 : 2));
  return barListsSvg(`Nearest to ${visibleToken(near.word)}, by cosine`, lists, colors, width);
}
