/* Threads beside a loop. */
#ifndef PP_COMMON_THREAD_H
#define PP_COMMON_THREAD_H

/** The calling thread goes after those of the process that have not called this, where there are
 * fewer processors than threads that want to run: for work that takes long beside a loop that
 * others wait for. Never back again. Calling it again does nothing. */
void pp_thread_step_back(void);

#endif
