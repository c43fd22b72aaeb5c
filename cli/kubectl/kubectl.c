#include "cli/kubectl/kubectl.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/json.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MAX = 256 << 20, ALL = PP_KUBECTL_ARGUMENTS + 20 };

extern char **environ;

void pp_kubectl_answer_done(pp_kubectl_answer *a)
{
    free(a->out);
    free(a->complaint);
    *a = (pp_kubectl_answer){0};
}

static void gather(const pp_kubectl *k, const char *const *arguments, char *all[static ALL])
{
    size_t n = 0;
    all[n++] = (char *)(uintptr_t) "kubectl";
    for (size_t i = 0; i < k->n_globals; i++)
        all[n++] = (char *)(uintptr_t)k->globals[i];
    for (size_t i = 0; arguments[i] && i < PP_KUBECTL_ARGUMENTS; i++)
        all[n++] = (char *)(uintptr_t)arguments[i];
    all[n] = NULL;
}

/* With these as its standard streams; -1: ours. */
static int spawn(const pp_kubectl *k, const char *const *arguments, const int fds[3], pid_t *ret,
                 pp_error *err)
{
    char *all[ALL];
    posix_spawn_file_actions_t actions;
    gather(k, arguments, all);
    int rc = posix_spawn_file_actions_init(&actions);
    for (int i = 0; rc == 0 && i < 3; i++)
        if (fds[i] >= 0)
            rc = posix_spawn_file_actions_adddup2(&actions, fds[i], i);
    if (rc == 0)
        rc = posix_spawnp(ret, "kubectl", &actions, NULL, all, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (rc == ENOENT)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "kubectl is not in PATH");
    return rc == 0 ? 0 : pp_error_set(err, PP_ERR_IO, "kubectl: %s", strerror(rc));
}

static int wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- talking to it ---- */

typedef struct stream {
    int fd; /* ours; -1: closed */
    pp_buf text;
} stream;

static void shut(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* Closed at its end. */
static int take(stream *s, pp_error *err)
{
    char piece[65536];
    const ssize_t n = read(s->fd, piece, sizeof piece);
    if (n > 0)
        return pp_buf_append(&s->text, piece, (size_t)n, err);
    if (n == 0 || errno != EINTR)
        shut(&s->fd);
    return 0;
}

/* A child that wants no more input is not told the rest. */
static void give(int *fd, const char **input)
{
    const ssize_t n = write(*fd, *input, strlen(*input));
    if (n > 0)
        *input += n;
    if (!**input || (n < 0 && errno != EINTR && errno != EAGAIN))
        shut(fd);
}

static int talk(int to, const char *input, stream *out, stream *complaint, pp_error *err)
{
    int rc = 0;
    while (rc == 0 && (to >= 0 || out->fd >= 0 || complaint->fd >= 0)) {
        struct pollfd fds[] = {{to, POLLOUT, 0}, {out->fd, POLLIN, 0}, {complaint->fd, POLLIN, 0}};
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            rc = pp_error_errno(err, "kubectl");
        if (rc == 0 && to >= 0 && fds[0].revents)
            give(&to, &input);
        if (rc == 0 && out->fd >= 0 && fds[1].revents)
            rc = take(out, err);
        if (rc == 0 && complaint->fd >= 0 && fds[2].revents)
            rc = take(complaint, err);
    }
    shut(&to);
    return rc;
}

static int open_pipes(int pipes[3][2], bool input, pp_error *err)
{
    for (int i = 0; i < 3; i++)
        pipes[i][0] = pipes[i][1] = -1;
    for (int i = input ? 0 : 1; i < 3; i++)
        if (pipe2(pipes[i], O_CLOEXEC) < 0)
            return pp_error_errno(err, "kubectl");
    if (!input)
        pipes[0][0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return 0;
}

static int finish(stream *s, char **ret, pp_error *err)
{
    if (pp_buf_append(&s->text, "", 1, err) < 0)
        return -1;
    *ret = strdup(s->text.data);
    if (*ret)
        return 0;
    (void)pp_error_nomem(err);
    return -1;
}

int pp_kubectl_run(const pp_kubectl *k, const char *const *arguments, const char *input,
                   pp_kubectl_answer *ret, pp_error *err)
{
    int pipes[3][2];
    pid_t child = 0;
    stream out = {.fd = -1}, complaint = {.fd = -1};
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    *ret = (pp_kubectl_answer){0};
    pp_buf_init(&out.text, ANSWER_MAX);
    pp_buf_init(&complaint.text, ANSWER_MAX);
    int rc = open_pipes(pipes, input != NULL, err);
    if (rc == 0)
        rc = spawn(k, arguments, (const int[]){pipes[0][0], pipes[1][1], pipes[2][1]}, &child, err);
    shut(&pipes[0][0]);
    shut(&pipes[1][1]);
    shut(&pipes[2][1]);
    out.fd = pipes[1][0];
    complaint.fd = pipes[2][0];
    if (rc == 0)
        rc = talk(pipes[0][1], input ? input : "", &out, &complaint, err);
    else
        shut(&pipes[0][1]);
    shut(&out.fd);
    shut(&complaint.fd);
    if (child > 0)
        ret->status = wait_for(child);
    if (rc == 0 &&
        (finish(&out, &ret->out, err) < 0 || finish(&complaint, &ret->complaint, err) < 0))
        rc = -1;
    pp_buf_done(&out.text);
    pp_buf_done(&complaint.text);
    (void)signal(SIGPIPE, before);
    if (rc == 0)
        return 0;
    pp_kubectl_answer_done(ret);
    return -1;
}

/* A line of its libraries' log: "E1128 17:54:41.253684 ...". */
static bool is_logged(const char *line)
{
    return strchr("IWEF", line[0]) && strspn(line + 1, "0123456789") == 4 && line[5] == ' ';
}

const char *pp_kubectl_tidy(char *complaint)
{
    char *to = complaint;
    for (const char *line = complaint; *line;) {
        const size_t length = strcspn(line, "\n");
        const size_t whole = length + (line[length] == '\n');
        if (length > 0 && !is_logged(line)) {
            memmove(to, line, whole);
            to += whole;
        }
        line += whole;
    }
    while (to > complaint && to[-1] == '\n')
        to--;
    *to = '\0';
    return *complaint ? complaint : "it failed without a word";
}

const char *pp_kubectl_complaint(pp_kubectl_answer *a)
{
    return pp_kubectl_tidy(a->complaint);
}

/* It tells no codes: these are the words of k8s.io/kubectl's and apimachinery's errors. */
static pp_error_code code_of(const char *complaint)
{
    static const struct {
        const char *words;
        pp_error_code code;
    } known[] = {{"Error from server (NotFound)", PP_ERR_NOT_FOUND},
                 {"the server doesn't have a resource type", PP_ERR_NOT_FOUND},
                 {"Error from server (Forbidden)", PP_ERR_DENIED},
                 {"(Unauthorized)", PP_ERR_UNAUTHORIZED}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(complaint, known[i].words))
            return known[i].code;
    return PP_ERR_IO;
}

int pp_kubectl_json(const pp_kubectl *k, const char *const *arguments, const char *input,
                    json_t **ret, pp_error *err)
{
    pp_kubectl_answer answer;
    if (pp_kubectl_run(k, arguments, input, &answer, err) < 0)
        return -1;
    int rc = 0;
    if (answer.status != 0) {
        const char *why = pp_kubectl_complaint(&answer);
        rc = pp_error_set(err, code_of(why), "kubectl: %s", why);
    } else {
        *ret = pp_json_parse(answer.out, strlen(answer.out), err);
        rc = *ret ? 0 : -1;
    }
    pp_kubectl_answer_done(&answer);
    return rc;
}

int pp_kubectl_try(const pp_kubectl *k, const char *const *arguments, const char *what,
                   pp_error *err)
{
    pp_kubectl_answer answer;
    if (pp_kubectl_run(k, arguments, NULL, &answer, err) < 0)
        return -1;
    const char *why = answer.status == 0 ? NULL : pp_kubectl_complaint(&answer);
    const int rc =
        why ? pp_error_set(err, PP_ERR_UNAVAILABLE, "%s: %.*s", what, (int)strcspn(why, "\n"), why)
            : 0;
    pp_kubectl_answer_done(&answer);
    return rc;
}

int pp_kubectl_pass(const pp_kubectl *k, const char *const *arguments, pp_error *err)
{
    pid_t child = 0;
    if (spawn(k, arguments, (const int[]){-1, -1, -1}, &child, err) < 0)
        return -1;
    return wait_for(child);
}

int pp_kubectl_start(const pp_kubectl *k, const char *const *arguments, int complaints, pid_t *ret,
                     int *ret_out, pp_error *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return pp_error_errno(err, "kubectl");
    const int rc = spawn(k, arguments, (const int[]){-1, fds[1], complaints}, ret, err);
    (void)close(fds[1]);
    if (rc < 0)
        (void)close(fds[0]);
    else
        *ret_out = fds[0];
    return rc;
}

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};

static struct {
    volatile sig_atomic_t child;
    const char *volatile socket, *volatile folder;
} guarded;

/* Nothing but what a handler may do. */
static void end_guarded(int number)
{
    if (guarded.child > 0)
        (void)kill((pid_t)guarded.child, SIGTERM);
    if (guarded.socket)
        (void)unlink(guarded.socket);
    if (guarded.folder)
        (void)rmdir(guarded.folder);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

void pp_kubectl_guard(pid_t child, const char *socket, const char *folder)
{
    guarded.socket = socket;
    guarded.folder = folder;
    guarded.child = (sig_atomic_t)child;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        (void)signal(ends[i], end_guarded);
}

static void unguard(void)
{
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        (void)signal(ends[i], SIG_DFL);
    guarded.child = 0;
    guarded.socket = guarded.folder = NULL;
}

void pp_kubectl_stop(pid_t child)
{
    if (child <= 0)
        return;
    if (child == (pid_t)guarded.child)
        unguard();
    (void)kill(child, SIGTERM);
    (void)wait_for(child);
}

int pp_kubectl_namespace(const pp_kubectl *k, char **ret, pp_error *err)
{
    static const char *const ask[] = {"config", "view", "--minify", "-o", "jsonpath={..namespace}",
                                      NULL};
    pp_kubectl_answer answer = {0};
    if (k->namespace) {
        *ret = strdup(k->namespace);
        return *ret ? 0 : pp_error_nomem(err);
    }
    if (pp_kubectl_run(k, ask, NULL, &answer, err) < 0)
        return -1;
    *ret = strdup(answer.status == 0 && *answer.out ? answer.out : "default");
    pp_kubectl_answer_done(&answer);
    return *ret ? 0 : pp_error_nomem(err);
}
