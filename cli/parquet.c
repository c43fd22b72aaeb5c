#include "cli/parquet.h"

#include "cli/formats/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { WITHOUT_PYARROW = 3 }; /* as parquet.py exits then */

#define INSTEAD "csv and json need nothing"

static int no_python(pp_error *err)
{
    return pp_error_field(
        err, "--format",
        "parquet needs python3 with pyarrow, and there is no python3 in PATH; " INSTEAD);
}

/* Starts it with the end of a pipe as its standard input; the other end comes back in *ret. */
static int start(const char *program, pid_t *pid, int *ret, pp_error *err)
{
    char python[] = "python3";
    char *const arguments[] = {python, (char *)(uintptr_t)program, NULL};
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return pp_error_errno(err, "starting python3");
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc == 0) {
        rc = posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
        if (rc == 0)
            rc = posix_spawnp(pid, python, &actions, NULL, arguments, environ);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(ends[0]);
    *ret = ends[1];
    if (rc == 0)
        return 0;
    (void)close(ends[1]);
    errno = rc;
    return rc == ENOENT ? no_python(err) : pp_error_errno(err, "starting python3");
}

/* It says on standard error what else went wrong. */
static int finish(pid_t pid, pp_error *err)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return pp_error_errno(err, "waiting for python3");
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == WITHOUT_PYARROW)
        return pp_error_field(err, "--format",
                              "parquet needs pyarrow, which python3 does not have: python3 -m pip "
                              "install pyarrow; " INSTEAD);
    return pp_error_set(err, PP_ERR_IO, "python3 did not write the file to its end");
}

int pp_parquet_write(const pp_training *trainings, size_t n, const char *program, pp_error *err)
{
    pid_t pid = -1;
    int in = -1;
    pp_error first = {0};
    if (!program)
        return pp_error_field(err, "--format", "parquet.py is not where it is installed");
    (void)signal(SIGPIPE, SIG_IGN); /* it may end before it has read all, and says why */
    if (start(program, &pid, &in, err) < 0)
        return -1;
    FILE *to = fdopen(in, "w");
    int rc = to ? pp_rows_lines(trainings, n, to, &first) : pp_error_errno(&first, "a pipe");
    if (to && fclose(to) != 0 && rc == 0)
        rc = pp_error_errno(&first, "writing the rows");
    if (!to)
        (void)close(in);
    if (finish(pid, err) < 0)
        return -1;
    if (rc < 0)
        *err = first;
    return rc;
}
