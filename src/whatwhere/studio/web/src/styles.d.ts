/** Styles are bundled by esbuild; TypeScript ignores them. */
declare module "*.css";

declare module "d3-array" {
  export function median(values: Iterable<number>): number | undefined;
  export function ticks(start: number, stop: number, count: number): number[];
}
