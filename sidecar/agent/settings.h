/*
 * The session's settings, as the operator's webhook puts them into the pod (an annotation,
 * projected as a file), and as a welcome brings those of a later session.
 */
#ifndef PP_AGENT_SETTINGS_H
#define PP_AGENT_SETTINGS_H

#include "common/error.h"
#include "common/json.h"
#include "sidecar/agent/sampling_schedule.h"

typedef struct pp_settings {
    int64_t version;
    char *session; /**< UID of the ProfileSession; NULL: none yet, and nothing below endpoint */
    char *namespace_;
    char *name;
    char *endpoint;       /**< wss://host[:port]/path */
    pp_strings addresses; /**< literal IPs behind that host's name; may be none */
    pp_strings include;
    pp_strings exclude;
    pp_strings types;
    int64_t depth;
    pp_strings phases; /**< empty: all */
    int64_t skip;
    int64_t max;
    double duration;         /**< seconds from the first sampled step; 0: no end */
    double budget_percent;   /**< what the hook may cost */
    double capture;          /**< seconds */
    int64_t events_port;     /**< where foreign hooks post, on the loopback; 0: nowhere */
    int64_t sampling_period; /**< ns between samples of the GPU's performance monitors; 0: none are
                                wanted */
    int64_t dwell_ms;        /**< how long each layer is replayed in each phase; 0: none is */
    int64_t pause_ms;        /**< how long the training may be paused for that in all */
    int64_t memory_mib;      /**< what replays may take of the memory */
    int64_t timeline;        /**< steps of each capture that are sent in full; 8 unless said */
} pp_settings;

/** Reads and checks the file; free with pp_settings_free, also after a failure. */
int pp_settings_read(const char *path, pp_settings *ret, pp_error *err);

/** The same from text. */
int pp_settings_parse(const char *text, size_t n, pp_settings *ret, pp_error *err);

/** The same from JSON. */
int pp_settings_decode(const json_t *root, pp_settings *ret, pp_error *err);

void pp_settings_free(pp_settings *settings);

#define PP_SETTINGS_KEPT "session.json"

/** Writes the settings of a later session into a directory of the agent's own, for the agent after
 * this one. */
int pp_settings_keep(const json_t *root, const char *directory, pp_error *err);

/** Reads what was kept there last; fails where there is none. As pp_settings_read. */
int pp_settings_read_kept(const char *directory, pp_settings *ret, pp_error *err);

/** A number of the session, made from its UID: by it the hook knows another one. 0: none. */
uint32_t pp_settings_number(const pp_settings *settings);

/** What follows for when to sample. */
pp_schedule_policy pp_settings_policy(const pp_settings *settings);

/**
 * Writes the hook's control file into the ring directory, in one piece: the mode in which trainers
 * that start from now on begin ("idle", "count" or "sample"), the session's number, and the
 * filters.
 */
int pp_settings_control(const pp_settings *settings, const char *directory, const char *mode,
                        pp_error *err);

#endif
