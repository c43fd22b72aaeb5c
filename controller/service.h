/*
 * The operator's Service as agents reach it: by its name, and where a pod cannot resolve that (in
 * the node's network, or with name servers of its own) by the addresses that the cluster has given
 * it. Pure.
 */
#ifndef PP_CONTROLLER_SERVICE_H
#define PP_CONTROLLER_SERVICE_H

#include "common/json.h"

#include <jansson.h>
#include <stdbool.h>

/** Whether the URL's host is a name of that Service: NAME.NAMESPACE, alone or with .svc and what
 * follows that. The addresses of a Service are of no use for another host. */
bool pp_service_has(const char *url, const char *name, const char *namespace_);

/** Whether the Service brings its callers to pods with these labels, an object of texts. One
 * without a selector is looked after by somebody else: it does. */
bool pp_service_selects(const json_t *service, const json_t *labels);

/**
 * Literal IPs of the Service (spec.clusterIPs, of a server without these spec.clusterIP), the
 * primary family's first, PP_WIRE_MAX_ADDRESSES at most; none of a headless one, whose pods'
 * addresses do not last, and of an ExternalName. `ret` is set also after a failure.
 */
int pp_service_addresses(const json_t *service, pp_strings *ret, pp_error *err);

/**
 * "ADDRESS:PORT" ("[ADDRESS]:PORT" for IPv6) of each endpoint of an EndpointSlice of the Service,
 * for its port of that name, but for the pod `self` (NULL: none); those that are not ready, too: a
 * pod that stops is called as long as it serves. `ret` is set also after a failure.
 */
int pp_service_endpoints(const json_t *slice, const char *port, const char *self, pp_strings *ret,
                         pp_error *err);

#endif
