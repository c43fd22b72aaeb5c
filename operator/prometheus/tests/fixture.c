#include "operator/prometheus/tests/fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int fixture_listen(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&address, n) == 0 && listen(fd, 16) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &n), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

pid_t fixture_start_prometheus(const char *dir, int port, const char *option)
{
    char config[128];
    char data[128];
    char listen_on[64];
    char log[128];
    (void)snprintf(config, sizeof(config), "--config.file=%s/prometheus.yml", dir);
    (void)snprintf(data, sizeof(data), "--storage.tsdb.path=%s/data", dir);
    (void)snprintf(listen_on, sizeof(listen_on), "--web.listen-address=127.0.0.1:%d", port);
    (void)snprintf(log, sizeof(log), "%s/log", dir);
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execlp("prometheus", "prometheus", config, data, listen_on, option, (char *)NULL);
    _exit(127);
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info;
    (void)type;
    (void)ftw;
    return remove(path);
}

void fixture_remove(const char *dir)
{
    (void)nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void fixture_stop(uv_loop_t *loop, pp_prometheus *client, pp_http_client *http, pid_t one,
                  pid_t other)
{
    pp_prometheus_free(client);
    pp_http_client_free(http);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
    kill(one, SIGKILL);
    kill(other, SIGKILL);
    waitpid(one, NULL, 0);
    waitpid(other, NULL, 0);
}

static void copy_texts(pp_strings *to, const pp_strings *from)
{
    *to = (pp_strings){0};
    for (size_t i = 0; i < from->count; i++)
        assert_int_equal(pp_strings_add(to, from->items[i], NULL), 0);
}

static void on_answer(void *user, uint64_t id, const pp_prometheus_answer *answer,
                      const pp_error *error)
{
    fixture_reply *reply = user;
    (void)id;
    reply->answered = true;
    pp_prometheus_answer_done(&reply->answer);
    reply->error = error ? *error : (pp_error){0};
    if (!answer)
        return;
    reply->answer = *answer;
    copy_texts(&reply->answer.gpus, &answer->gpus);
    copy_texts(&reply->answer.shared, &answer->shared);
    reply->answer.samples = calloc(answer->n_samples + 1, sizeof(*answer->samples));
    assert_non_null(reply->answer.samples);
    if (answer->n_samples)
        memcpy(reply->answer.samples, answer->samples,
               answer->n_samples * sizeof(*answer->samples));
}

void fixture_ask(uv_loop_t *loop, pp_prometheus *client, const char *text, int64_t time_ns,
                 fixture_reply *reply)
{
    pp_error err = {0};
    reply->answered = false;
    if (pp_prometheus_query(client, text, time_ns, 0, on_answer, reply, NULL, &err) < 0)
        fail_msg("%s", err.message);
    while (!reply->answered)
        uv_run(loop, UV_RUN_ONCE);
}
