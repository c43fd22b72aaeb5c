/*
 * A window in which a GPU was sampled, as it was before it was joined: samples, kernels, and where
 * their lag was looked for, in a file of its own. Kept where somebody asks for it (`precisionprobe
 * run
 * --keep-windows`), to be evaluated again; a format of this build and kind of machine, which other
 * builds refuse to read.
 */
#ifndef PP_AGENT_WINDOW_FILE_H
#define PP_AGENT_WINDOW_FILE_H

#include "estimate/sampling/join.h"

#define PP_WINDOW_SUFFIX ".window"

/** Makes a folder for them; those of before go. */
int pp_window_folder_make(const char *folder, pp_error *err);

/** Writes `<folder>/<name>-<number, 4 digits><suffix>`; in order of their names they are in that of
 * their times. */
int pp_window_file_write(const char *folder, const char *name, uint64_t number,
                         const pp_sampling *window, const pp_sampling_clock *clock, pp_error *err);

/** As it was; free with pp_sampling_free(). */
int pp_window_file_read(const char *path, pp_sampling **ret, pp_sampling_clock *ret_clock,
                        pp_error *err);

#endif
