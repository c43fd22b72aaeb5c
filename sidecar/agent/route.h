/*
 * Which address of the operator's to connect to: policy without I/O.
 *
 * What the name resolves to goes first, since that follows a Service that is made anew; the
 * addresses that the pod was injected with come after it, for pods whose resolver does not know the
 * cluster, or knows something else by that name. One at which nobody answered as the operator gives
 * way to the next in the list; one that did stays.
 */
#ifndef PP_AGENT_ROUTE_H
#define PP_AGENT_ROUTE_H

#include "common/json.h"
#include "common/wire.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

/** Literal IPs. */
typedef struct pp_route_list {
    char text[PP_WIRE_MAX_ADDRESSES][INET6_ADDRSTRLEN];
    size_t count;
} pp_route_list;

/** Zeroed at first. */
typedef struct pp_route {
    pp_route_list given; /**< with the settings */
    pp_route_list found; /**< what the name resolved to last; none: it did not */
    char last[INET6_ADDRSTRLEN];
    bool failed; /**< nobody answered there as the operator */
} pp_route;

/** Adds one that is not there yet; what is no address, or too much, is left out. */
void pp_route_add(pp_route_list *list, const char *address);

/** The address to connect to, valid until the next call; NULL: there is none. `*ret_named`: it is
 * what the name resolves to. */
const char *pp_route_next(pp_route *route, bool *ret_named);

/** Nobody answered as the operator where pp_route_next led to. */
void pp_route_failed(pp_route *route);

/** Somebody did. */
void pp_route_worked(pp_route *route);

#endif
