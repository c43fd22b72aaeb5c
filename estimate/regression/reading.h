/* Which window each reading saw newest, where the time from a window's end until it can be read
 * drifts. */
#ifndef PP_ESTIMATE_REGRESSION_READING_H
#define PP_ESTIMATE_REGRESSION_READING_H

#include "estimate/regression/scrapes.h"

/**
 * number[j]: of the window that scrape j saw newest, which ends at phase + number[j] * W by the
 * windows' clock. `misfit` as for pp_reg_windows_init, not NULL. Errors: PP_ERR_NOMEM.
 */
int pp_reg_reading_decode(const pp_reg_scrapes *s, double phase, const double *misfit,
                          double *number, pp_error *err);

#endif
