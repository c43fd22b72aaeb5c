/*
 * Log lines for people and machines: one JSON object per line on standard error, with time, level,
 * subject and message. Thread-safe.
 */
#ifndef PP_COMMON_LOG_H
#define PP_COMMON_LOG_H

typedef enum pp_log_level { PP_LOG_DEBUG, PP_LOG_INFO, PP_LOG_WARN, PP_LOG_ERROR } pp_log_level;

/** Lines below this level are not written. Default PP_LOG_INFO. */
void pp_log_set_level(pp_log_level level);

/** Parses "debug", "info", "warn" or "error"; returns -1 for anything else. */
int pp_log_level_from_name(const char *name, pp_log_level *ret_level);

/**
 * Writes one line. `subject` is what it is about ("session ml/dlrm", "pod ml/dlrm-0", or NULL);
 * the rest is a printf format. Never fails visibly; a line is cut at 2 KiB.
 */
__attribute__((format(printf, 3, 4))) void pp_log(pp_log_level level, const char *subject,
                                                  const char *fmt, ...);

#define pp_debug(subject, ...) pp_log(PP_LOG_DEBUG, subject, __VA_ARGS__)
#define pp_info(subject, ...) pp_log(PP_LOG_INFO, subject, __VA_ARGS__)
#define pp_warn(subject, ...) pp_log(PP_LOG_WARN, subject, __VA_ARGS__)
#define pp_err(subject, ...) pp_log(PP_LOG_ERROR, subject, __VA_ARGS__)

#endif
