/* What the MutatingWebhookConfiguration has to hold that only the operator knows. Pure. */
#ifndef PP_OPERATOR_INSTALLATION_WEBHOOK_H
#define PP_OPERATOR_INSTALLATION_WEBHOOK_H

#include <jansson.h>

/**
 * The JSON patch that gives every entry of the configuration our CA (the bundle in base64) and its
 * path, /SECRET/ and what stands before the first dot of its name; empty when they have both. It
 * applies only where the entries stand as in `object`. Entries without a service keep their URL.
 * NULL without memory.
 */
json_t *pp_webhook_patch(const json_t *object, const char *bundle, const char *secret);

#endif
