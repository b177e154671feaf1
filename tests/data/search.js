// Runs the search of rendered documentation, as its pages do: node search.js TARGET/doc NAME...
// Prints a line for each name: the name, and where the first hits lead, with tabs in between.
"use strict";
const fs = require("fs");
const path = require("path");

const [doc, ...names] = process.argv.slice(2);
const statics = path.join(doc, "static.files");
const script = pattern => require(path.join(statics, fs.readdirSync(statics).find(file => pattern.test(file))));
const run = (...parts) => (0, eval)(fs.readFileSync(path.join(doc, "search.index", ...parts), "utf8"));
globalThis.nonnull = globalThis.nonundef = value => value;

(async () => {
    const { Stringdex, RoaringBitmap } = script(/^stringdex.*\.js$/);
    const { docSearch, DocSearch } = await script(/^search-.*\.js$/).initSearch(Stringdex, RoaringBitmap, {
        loadRoot: callbacks => {
            Object.assign(globalThis, callbacks);
            run("root.js");
        },
        loadTreeByHash: hash => run(`${hash}.js`),
        loadDataByNameAndHash: (name, hash) => run(name, `${hash}.js`),
    });
    for (const name of names) {
        const results = await docSearch.execQuery(DocSearch.parseQuery(name), null, "event_core");
        const line = [name];
        for await (const item of results.others) {
            line.push(item.href);
            if (line.length > 6) {
                break;
            }
        }
        console.log(line.join("\t"));
    }
})();
