/* spec.selector. */
#ifndef PP_CONTROLLER_SESSION_SESSION_SELECTOR_H
#define PP_CONTROLLER_SESSION_SESSION_SELECTOR_H

#include "controller/session/session.h"

/** Decodes spec.selector into a zeroed *ret; what was filled is freed with it also on failure. */
int pp_session_decode_selector(const json_t *spec, pp_selector *ret, pp_error *err);

/** Frees what a selector owns; a zeroed one is fine. */
void pp_session_free_selector(pp_selector *selector);

#endif
