/* Copies the hook into the volume that the trainer will find it in. */
#ifndef PP_AGENT_INSTALL_H
#define PP_AGENT_INSTALL_H

#include "common/error.h"

/**
 * Copies the tree at `from` to `to` (made where it is missing), readable by every user. A tree that
 * is there already is replaced as a whole: what was complete is never seen half-written.
 */
int pp_install(const char *from, const char *to, pp_error *err);

#define PP_ENVIRONMENT_PROGRAM "precisionprobe-environment"

/**
 * Copies this machine's program that records an image's environment from the tree at `from` to
 * `to` itself (made where it is missing), where the trainer's image finds it. It may run already.
 */
int pp_install_environment(const char *from, const char *to, pp_error *err);

#endif
