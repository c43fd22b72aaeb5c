/*
 * A window in which a GPU was sampled, as it was before it was joined: samples, kernels, and where
 * their lag was looked for, in a file of its own. Kept where somebody asks for it (`run
 * --keep-windows`), to be evaluated again. Structs as they are in memory: PP_WINDOW_VERSION changes
 * with any of them, with the order of metrics and with what their fields mean, and files of another
 * one are refused.
 */
#ifndef PP_AGENT_WINDOW_FILE_H
#define PP_AGENT_WINDOW_FILE_H

#include "estimate/sampling/join.h"

#define PP_WINDOW_SUFFIX ".window"
enum { PP_WINDOW_VERSION = 1 };

/** Removes those of before from a folder, which may be missing. */
int pp_window_folder_clear(const char *folder, pp_error *err);

/** Writes `<folder>/<name>-<number, 4 digits><suffix>`; in order of their names they are in that of
 * their times. */
int pp_window_file_write(const char *folder, const char *name, uint64_t number,
                         const pp_sampling *window, const pp_sampling_clock *clock, pp_error *err);

/** As it was; free with pp_sampling_free(). */
int pp_window_file_read(const char *path, pp_sampling **ret, pp_sampling_clock *ret_clock,
                        pp_error *err);

#endif
