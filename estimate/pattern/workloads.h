/* Patterns: what workloads are like, by the usages of all their sessions. */
#ifndef PP_ESTIMATE_PATTERN_WORKLOADS_H
#define PP_ESTIMATE_PATTERN_WORKLOADS_H

#include "estimate/pattern/merge.h"

/** One GPU of a workload in one of its sessions; owned. */
typedef struct pp_workload_usage {
    char *namespace_;
    char *kind;
    char *name;
    char *session;       /**< UID */
    int64_t finished_ns; /**< of the session, ns since 1970 */
    pp_usage *usage;
} pp_workload_usage;

/** Sorted by workload, then by session: pp_workload_usages_sort(). */
typedef struct pp_workload_usages {
    pp_workload_usage *items;
    size_t n;
} pp_workload_usages;

void pp_workload_usages_sort(pp_workload_usages *usages);
/** Frees what it holds. */
void pp_workload_usages_done(pp_workload_usages *usages);

/** A name with its NUL. */
enum { PP_PATTERN_NAME = 254 };

/** "deployment-dlrm": the object's name, of its workload's kind and name. A workload whose name is
 * too long for that, or no part of one, has an end made from all of it. */
void pp_pattern_name(const char *kind, const char *name, char ret[PP_PATTERN_NAME]);

/** A ConsumptionPattern's figures. Texts are borrowed from the usages that it was made of. */
typedef struct pp_pattern {
    const char *namespace_;
    const char *kind;
    const char *name;
    char object[PP_PATTERN_NAME]; /**< the object's name */
    const char *session;          /**< the newest of its sessions */
    int sessions;       /**< with a step, of the newest one's models, and on GPUs like its */
    int gpus;           /**< of these, of all of them */
    pp_merge_left left; /**< sessions that are not part of it */
    int64_t first_ns;   /**< when the first of them finished */
    int64_t last_ns;
    pp_usage *usage; /**< owned */
    pp_bound bound;
    pp_figure lead; /**< of its share, before the next one */
} pp_pattern;

typedef struct pp_patterns {
    pp_pattern *items;
    size_t n;
} pp_patterns;

/** A pattern for each workload that has a step; `usages` are sorted. PP_ERR_NOMEM. */
int pp_patterns_make(const pp_workload_usages *usages, int64_t now_ns, pp_patterns *ret,
                     pp_error *err);
void pp_patterns_done(pp_patterns *patterns);

#endif
