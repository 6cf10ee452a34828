/** Lists of nearest tokens side by side, each with a bar for its cosine. */

import { fixed } from "../../numbers";
import type { BarList } from "../../parts/bars";
import type { Column } from "../../parts/table";
import { TokenLabel } from "../../parts/token";
import { shownToken, visibleToken } from "../../escape";
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

/** Return the lists as bars; a mark is on tokens that are not in every list. */
export function barsOf(near: TokenNeighbors, link: (number: number) => string): BarList[] {
  const everywhere = shared(near);
  return near.lists.map((list, k) => ({
    heading: heading(list),
    bars: list.words.map((word, n) => {
      const number = list.ids.values[n]!;
      const text = list.texts[n];
      const cosine = list.cosines.values[n]!;
      return {
        name: shownToken(word, text),
        link: <TokenLabel word={word} text={text} href={link(number)} />,
        share: cosine,
        text: fixed(cosine, 3),
        color: k % 2 ? "c1" : "c2",
        mark: (
          <span class="mark" title={everywhere.has(number) ? "in every list" : "not in every list"}>
            {everywhere.has(number) ? "" : "◦"}
          </span>
        ),
      };
    }),
  }));
}

export function InEvery({ near }: { near: TokenNeighbors }) {
  if (near.lists.length < 2) return null;
  return (
    <p class="note">
      {shared(near).size} of {near.lists[0]!.words.length} are in every list; ◦ marks those that are not.
    </p>
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
        <TokenLabel word={row.list.words[row.rank]!} text={row.list.texts[row.rank]} href={link(number(row))} />
      ),
    },
    { title: "id", numeric: true, value: number, cell: number },
    { title: "type", value: ({ list, rank }) => list.kinds[rank] },
    { title: "cosine", decimals: 4, value: ({ list, rank }) => list.cosines.values[rank] },
    { title: "norm", numeric: true, value: ({ list, rank }) => list.norms.values[rank] },
  ];
}
