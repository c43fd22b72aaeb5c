/*
 * Processes that name no GPU share nothing whose time could be told apart by who had it: the times
 * of each are its own, and what runs beside each other counts in full.
 */
#ifndef PP_ESTIMATE_ACTIVITY_APART_H
#define PP_ESTIMATE_ACTIVITY_APART_H

#include "estimate/activity/activity.h"

/**
 * Copies of what has times, with each process' moved to where no other process has any. Texts,
 * samples and the rest are the activity's own, which has to outlive *ret; pp_apart_done frees what
 * was copied, also after an error.
 */
int pp_apart_make(const pp_activity *activity, pp_activity *ret, pp_error *err);
void pp_apart_done(pp_activity *apart);

#endif
