// Builds the page into the Python package, so that users and a clone need no Node.
// With --check nothing is written, and it fails if what is there differs.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync, mkdirSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "src", "penstock", "web", "static");
const check = process.argv.includes("--check");

/** Names of all files below a folder, in order. */
function walk(folder) {
  return readdirSync(folder, { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((entry) =>
      entry.isDirectory() ? walk(join(folder, entry.name)) : [join(folder, entry.name)],
    );
}

// A test in Python works out the same, so that it sees a stale build without Node.
const hash = createHash("sha256");
for (const file of [...walk(join(here, "src")), join(here, "package-lock.json")]) {
  hash.update(relative(here, file).split("\\").join("/"));
  hash.update(readFileSync(file));
}
const banner = `/* made from frontend/ by npm run build; sources ${hash.digest("hex")} */`;

const made = await build({
  entryPoints: { app: join(here, "src", "main.tsx") },
  outdir: target,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2021"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: banner, css: banner },
  write: false,
});
const files = new Map(made.outputFiles.map((f) => [f.path, Buffer.from(f.contents)]));
for (const name of ["index.html", "icon.svg"]) {
  files.set(join(target, name), readFileSync(join(here, "src", name)));
}
mkdirSync(target, { recursive: true });
let stale = false;
for (const [path, contents] of files) {
  if (check) {
    let there = Buffer.alloc(0);
    try {
      there = readFileSync(path);
    } catch {
      // Missing is stale, too.
    }
    if (!there.equals(contents)) {
      console.error(`${relative(here, path)} is stale; run: make page`);
      stale = true;
    }
  } else {
    writeFileSync(path, contents);
    console.log(`${relative(here, path)} ${contents.length}`);
  }
}
process.exit(stale ? 1 : 0);
