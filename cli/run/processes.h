/* Processes of this machine, by /proc. */
#ifndef PP_CLI_RUN_PROCESSES_H
#define PP_CLI_RUN_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** Whether a process is another's, or was started by it, by one that it started, and so on. False
 * of one that is gone, or that an ancestor of has left behind. */
bool pp_process_descends(pid_t process, pid_t from);

/** Its name, as the kernel has it: 15 bytes, printable ones only; "" where it is gone. */
void pp_process_name(pid_t process, char *out, size_t size);

#endif
