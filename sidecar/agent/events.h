/*
 * Events of a foreign framework's own hooks (docs/openapi/events.yaml), folded into the batches
 * that marks of our hook become: events of one GPU are one process, a step is what has the same
 * epoch and batch, and ends when an event of another comes. No I/O and no clock of its own.
 *
 * A step begins where the one before it ended. Events may come in any order within a step; the same
 * event again within it is none, and what comes after its step has ended is dropped and counted, so
 * that a hook may post again what it has no answer to.
 */
#ifndef PP_AGENT_EVENTS_H
#define PP_AGENT_EVENTS_H

#include "common/error.h"
#include "sidecar/agent/process.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PP_EVENTS_BODY = 1 << 20, /**< bytes of a post */
    PP_EVENTS_OPEN = 200000,  /**< in steps that have not ended; past it 429 */
    PP_EVENTS_IDLE_S = 60,    /**< without an event a step has ended, and its capture */
};

typedef struct pp_events pp_events;

/** What the poster is told. */
typedef struct pp_events_answer {
    int status;       /**< 202, or 400, 409, 422, 429, 500 with `error` */
    int64_t accepted; /**< events that were posted; late ones are dropped all the same */
    bool sampling;    /**< whether events are wanted at all now */
    pp_error error;   /**< `field`: "[3].phase", or "phase" of a single event */
} pp_events_answer;

/** `pod`: what an event's `pod` may say; copied. NULL where memory is out. */
pp_events *pp_events_new(const char *pod);
/** NULL is allowed. */
void pp_events_free(pp_events *events);

/** A session begins: `name` (NULL: there is none) is what an event's `job` may say. Steps that have
 * not ended are forgotten. */
int pp_events_session(pp_events *events, const char *namespace_, const char *name, pp_error *err);

/** Takes one event or an array of them, all or none; emits the batches that are full. `now` is
 * monotonic ns, `real` the same moment in ns since 1970. */
void pp_events_post(pp_events *events, const char *text, size_t n, pp_agent_pod *pod, int64_t now,
                    int64_t real, pp_events_answer *ret);

/** Emits what is due; to be called several times a second. */
void pp_events_poll(pp_events *events, pp_agent_pod *pod, int64_t now);

/** Ends every step and emits all that is left. */
void pp_events_finish(pp_events *events, pp_agent_pod *pod, int64_t now);

/** Processes of which events have come lately. */
size_t pp_events_active(const pp_events *events);

#endif
