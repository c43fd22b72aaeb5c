/*
 * The agent: finds the training processes of its pod by their rings, has their batches sent and
 * acknowledged, obeys the operator's wish to sample, and leaves only when all is sent.
 */
#ifndef PP_AGENT_AGENT_H
#define PP_AGENT_AGENT_H

#include "common/error.h"

#include <stdbool.h>

typedef struct pp_agent_options {
    const char *settings_path;
    const char *token_path;
    const char *ca_path;
    const char *ring_directory;
    const char *spool_directory; /**< for batches until they are acknowledged; not with dump */
    const char *last_words;      /**< the container's termination log; NULL or not there: none */
    bool dump;              /**< print batches on standard output; they count as acknowledged */
    bool exit_with_trainer; /**< leave when the trainers have gone, see pp_idle_exit */
} pp_agent_options;

/**
 * Runs until SIGTERM or SIGINT, or until the trainers are gone where that is asked for. Once in a
 * pod's life it also ends where the operator cannot be reached for this node's clock, to leave that
 * as its last words (pp_wire_clock_said): the kubelet starts it anew at once.
 */
int pp_agent_run(const pp_agent_options *options, pp_error *err);

#endif
