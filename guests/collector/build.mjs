// node build.mjs MODULES SOURCE WIT WORLD OUT: a component with an engine that has `fetch`.

import { writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [modules, sourcePath, witPath, worldName, out] = process.argv.slice(2);
const tool = `${modules}/@bytecodealliance/componentize-js/src/componentize.js`;
const { componentize } = await import(pathToFileURL(tool));
const { component } = await componentize({ sourcePath, witPath, worldName });
await writeFile(out, component);
