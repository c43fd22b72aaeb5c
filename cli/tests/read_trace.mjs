// What Chrome's own parser of traces finds: one JSON array [process, thread, name, category, ts, dur, args] for each event.
// usage: node read_trace.mjs FOLDER_WITH_NODE_MODULES TRACE
import fs from 'node:fs';
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

globalThis.document = {documentElement: null}; // it is made for a browser
const [folder, path] = process.argv.slice(2);
const engine = createRequire(`${folder}/`).resolve('@paulirish/trace_engine');
const {TraceModel} = await import(pathToFileURL(engine));
const model = TraceModel.Model.createWithAllHandlers();
await model.parse(JSON.parse(fs.readFileSync(path)).traceEvents);
for (const [pid, found] of model.parsedTrace().data.Renderer.processes) {
  for (const [tid, thread] of found.threads) {
    for (const e of thread.entries)
      console.log(JSON.stringify([pid, tid, e.name, e.cat, e.ts, e.dur, e.args]));
  }
}
