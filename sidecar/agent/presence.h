/*
 * What the ring directory tells of the trainers before any of them trains: whether a Python that
 * has loaded the hook runs, and which libc their images have. Files, but no loop.
 */
#ifndef PP_AGENT_PRESENCE_H
#define PP_AGENT_PRESENCE_H

#include "common/wire.h"

#include <stdbool.h>
#include <stdint.h>

/** For how long a Python counts once it has ended: a script may start one after the other. */
#define PP_PRESENCE_NS INT64_C(60000000000)

/** What earlier looks saw; zero before the first. */
typedef struct pp_presence {
    bool loaded;     /* a Python had loaded the hook */
    int64_t last_ns; /* when one still ran; of those that ended before the first look that */
} pp_presence;

/**
 * Looks once more. Where `ret->torch` says that a process with torch has come it leaves a mark of
 * that in the directory; where a mark is there it says so. `loaded`: that, or a Python that has
 * loaded the hook runs, or ran within PP_PRESENCE_NS. What is there was written by the user's
 * processes, and is read as such.
 *
 * @param now_ns CLOCK_MONOTONIC.
 */
void pp_presence_look(pp_presence *p, const char *directory, int64_t now_ns, pp_wire_hook *ret);

#endif
