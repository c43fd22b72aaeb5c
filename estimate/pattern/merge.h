/*
 * Usages of several GPUs, pods and sessions into one: what a workload is like.
 *
 * Figures are means over sessions, whose GPUs were merged first: GPUs of one session share what was
 * special about it. Each counts by its standard error and by what sessions differ by (DerSimonian
 * and Laird, Controlled Clinical Trials 7, 1986), and half as much after each PP_MERGE_HALF_LIFE;
 * the error of the mean is by how the merged ones really differ (Hartung and Knapp, Statistics in
 * Medicine 20, 2001), and what they say of themselves at least.
 */
#ifndef PP_ESTIMATE_PATTERN_MERGE_H
#define PP_ESTIMATE_PATTERN_MERGE_H

#include "estimate/pattern/usage.h"

/** Age at which a session counts half. */
#define PP_MERGE_HALF_LIFE (INT64_C(30) * 86400 * 1000000000)

/** What a step takes differs by this share, a standard deviation, from one session of a training to
 * the next: another process, and another mood of its host and its GPU. One session cannot tell, so
 * this is in the errors of a single one's; several tell themselves. Of five of a GPT on an H200
 * steps differ by 2.7 % (docs/patterns.md). */
#define PP_MERGE_STEPS_DIFFER 0.02

/** A usage and where it comes from; those of one session are next to each other. */
typedef struct pp_merge_input {
    const char *session; /**< its UID; compared alone */
    int64_t finished_ns; /**< of the session, ns since 1970 */
    const pp_usage *usage;
} pp_merge_input;

/** Sessions with a step that are no part of what is merged. */
typedef struct pp_merge_left {
    int other_models; /**< they trained others */
    int other_gpus;   /**< they trained the same, and on no GPU like those that are */
} pp_merge_left;

/**
 * Keeps, in their order, what is like the newest session with a step: of sessions that trained the
 * same models, for a workload of the same name may train another one since, the GPUs that are like
 * most of that session's (of as many the one with more SMs, then by name). PP_ERR_NOMEM.
 */
int pp_merge_select(pp_merge_input *in, size_t *n, pp_merge_left *ret_left, pp_error *err);

/**
 * Merges n usages as of `now_ns`, all of the same training on GPUs that are alike. What is not
 * alike is not averaged: the newest session's usages say whether shares are of busy time and what
 * each metric comes from, and others are left out of that. The most of a metric is the highest.
 * PP_ERR_INVALID: none has steps; PP_ERR_NOMEM.
 */
int pp_usage_merge(const pp_merge_input *in, size_t n, int64_t now_ns, pp_usage **ret,
                   pp_error *err);

/** One figure of several, with their weights (NULL: all alike). Those that are not known are left
 * out; one whose error is not counts by the largest of the others'. Of n that differ by more than
 * they say, the mean's deviation over its error is distributed as t with n - 1 degrees of freedom:
 * of two, 2 standard errors hold for 70 % only. */
pp_figure pp_figure_merge(const pp_figure *figures, const double *weights, size_t n);

#endif
