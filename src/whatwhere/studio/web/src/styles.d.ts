/** Styles are bundled by esbuild; TypeScript ignores them. */
declare module "*.css";

/** Of d3-array, the page uses this function alone. */
declare module "d3-array" {
  export function ticks(start: number, stop: number, count: number): number[];
}
