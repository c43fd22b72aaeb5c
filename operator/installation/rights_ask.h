/* Asks the API server what it lets this operator do (state/rights.h), now and then. */
#ifndef PP_OPERATOR_INSTALLATION_RIGHTS_ASK_H
#define PP_OPERATOR_INSTALLATION_RIGHTS_ASK_H

#include "operator/state/rights.h"

/**
 * What an attempt to write the status of one session shows: 403 may be about that session alone (an
 * admission policy), so the API server is asked anew at once, and its word counts.
 */
void pp_rights_tell_written(pp_operator *op, const pp_error *error);

/** Asks the API server now and then. */
void pp_rights_start(pp_operator *op);
void pp_rights_stop(pp_operator *op);

#endif
