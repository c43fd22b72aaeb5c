/* The order in which memory that another process writes is read. */
#ifndef PP_SIDECAR_AGENT_FENCE_H
#define PP_SIDECAR_AGENT_FENCE_H

/**
 * What was read before this call is read before all that is read after it. A writer stores what it
 * writes before the number that covers it; so whoever has read the number has to read the rest
 * later, which processors of another kind than x86 do not promise for reads of different places,
 * and no page says of two calls of pread() either.
 */
void pp_read_fence(void);

#endif
