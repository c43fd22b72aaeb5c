/* A line that says what is under way, while somebody waits at a terminal. */
#ifndef PP_CLI_TERMINAL_PROGRESS_H
#define PP_CLI_TERMINAL_PROGRESS_H

/** Writes it to standard error in place of the one before; nothing where that is no terminal. */
__attribute__((format(printf, 1, 2))) void pp_progress_show(const char *format, ...);

/** Takes it away again: before anything else is written to the terminal. */
void pp_progress_clear(void);

#endif
