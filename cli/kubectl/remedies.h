/* What to do about what a session, a pod or the operator says of itself: docs/troubleshooting.md in
 * short. */
#ifndef PP_CLI_KUBECTL_REMEDIES_H
#define PP_CLI_KUBECTL_REMEDIES_H

#include <stddef.h>

/** Static; for a reason that is not listed where to read on. */
const char *pp_remedy(const char *reason);

/** Whether a reason asks for nothing: that of something that goes well, or is only waited for. */
int pp_remedy_is_needed(const char *reason);

/** The commands that make an account whose token reads a namespace's results, with `between` in the
 * middle. */
void pp_remedy_reader(const char *namespace, const char *account, const char *between, char *out,
                      size_t size);

#endif
