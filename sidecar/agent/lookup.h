/*
 * The addresses of a host's name, as this system's resolver has them: asked in a thread of its own,
 * since a name server that does not answer may keep it for half a minute, and nothing ends that.
 */
#ifndef PP_AGENT_LOOKUP_H
#define PP_AGENT_LOOKUP_H

#include "common/error.h"
#include "sidecar/agent/route.h"

#include <uv.h>

typedef struct pp_lookup pp_lookup;

/** On the loop; none are found: `why` says what the resolver says. */
typedef void (*pp_lookup_fn)(void *user, const pp_route_list *found, const char *why);

int pp_lookup_new(uv_loop_t *loop, const char *host, pp_lookup_fn answered, void *user,
                  pp_lookup **ret, pp_error *err);

/** Asks; where that is under way already, its answer is this one's too. */
int pp_lookup_start(pp_lookup *lookup, pp_error *err);

/** Takes it off the loop, which frees it; nobody is called any more, and a thread that still waits
 * for the resolver is left to itself. NULL is allowed. */
void pp_lookup_stop(pp_lookup *lookup);

#endif
