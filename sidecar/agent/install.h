/* Copies the hook into the volume that the trainer will find it in. */
#ifndef PP_AGENT_INSTALL_H
#define PP_AGENT_INSTALL_H

#include "common/error.h"

/**
 * Copies the tree at `from` to `to` (made where it is missing), readable by every user. A tree that
 * is there already is replaced as a whole: what was complete is never seen half-written.
 */
int pp_install(const char *from, const char *to, pp_error *err);

#endif
