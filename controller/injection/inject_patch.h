/* Operations of a JSON patch, and the entries that they add. */
#ifndef PP_CONTROLLER_INJECTION_INJECT_PATCH_H
#define PP_CONTROLLER_INJECTION_INJECT_PATCH_H

#include <jansson.h>
#include <stdbool.h>

/** Appends an operation; `value` is stolen, and may be NULL where it could not be made. */
int pp_inject_add(json_t *patch, const char *path, json_t *value);
int pp_inject_replace(json_t *patch, const char *path, json_t *value);
/** Entries of a container's volumeMounts and env. */
json_t *pp_inject_mount(const char *volume, const char *path, bool read_only);
/**
 * Where the API server has mounted the token of the pod's service account into the pod's own
 * containers it does so with what is added, after the webhook; and since that changes the pod it
 * asks the webhook once more. What is added needs no token: it gets a mount of another volume in
 * the place of it. Steals the mounts and returns them.
 */
json_t *pp_inject_without_token(const json_t *spec, json_t *mounts);
json_t *pp_inject_variable(const char *name, const char *value);

#endif
