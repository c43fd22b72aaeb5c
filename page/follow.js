// What is shown is read again as long as it may change.
import { element, replace } from "./dom.js";

const EVERY = 5000; // ms
const FINAL = [401, 403, 404]; // answers after which nothing more is asked

/** `look()` reads and shows, and says whether that was all. Once it could, one that fails is told in `trouble`, and the next follows. */
export async function follow(look, trouble, signal) {
  let there = false;
  while (!signal.aborted) {
    try {
      const over = await look();
      there = true;
      replace(trouble);
      if (over) return;
    } catch (problem) {
      if (!there || signal.aborted || FINAL.includes(problem.status)) throw problem;
      replace(trouble, element("p", { class: "hint" }, `What is shown may be old: ${problem.message}`));
    }
    await new Promise((done) => setTimeout(done, EVERY));
  }
}
