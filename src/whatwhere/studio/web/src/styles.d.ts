/** Styles are bundled by esbuild; TypeScript ignores them. */
declare module "*.css";
