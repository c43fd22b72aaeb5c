#include "operator/operator.h"
#include "operator/state/memory.h"

#include "common/log.h"

#include <argp.h>
#include <curl/curl.h>
#include <signal.h>
#include <stdlib.h>

/* precisionprobe-operator: arguments, configuration, signals. */

const char *argp_program_version = "precisionprobe-operator " PP_VERSION;

typedef struct arguments {
    const char *config;
    bool help_config;
    bool check_config;
} arguments;

enum { KEY_HELP_CONFIG = 256, KEY_CHECK_CONFIG };

static const struct argp_option argument_options[] = {
    {"config", 'c', "FILE", 0, "Configuration (default /etc/precisionprobe/config.yaml)", 0},
    {"help-config", KEY_HELP_CONFIG, NULL, 0, "Print the table of options and exit", 0},
    {"check-config", KEY_CHECK_CONFIG, NULL, 0, "Read the configuration, say what is wrong, exit",
     0},
    {0},
};

static error_t parse_argument(int key, char *value, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case 'c':
        args->config = value;
        return 0;
    case KEY_HELP_CONFIG:
        args->help_config = true;
        return 0;
    case KEY_CHECK_CONFIG:
        args->check_config = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void on_signal(uv_signal_t *handle, int number)
{
    pp_info(NULL, "signal %d", number);
    uv_close((uv_handle_t *)handle->data, NULL);
    uv_close((uv_handle_t *)handle, NULL);
    pp_operator_drain(handle->loop->data);
}

/* Either signal stops once; the pair is closed together, so that the loop can run out. */
static void catch_signals(uv_loop_t *loop, uv_signal_t signals[2])
{
    static const int numbers[2] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        uv_signal_init(loop, &signals[i]);
        signals[i].data = &signals[1 - i];
        uv_signal_start(&signals[i], on_signal, numbers[i]);
        uv_unref((uv_handle_t *)&signals[i]);
    }
    signal(SIGPIPE, SIG_IGN);
}

static int run(const pp_config *config)
{
    uv_loop_t loop;
    uv_signal_t signals[2];
    pp_operator op;
    pp_error err = {0};
    /* Four targets are solved at a time (solve.c); names are looked up meanwhile. */
    (void)setenv("UV_THREADPOOL_SIZE", "8", 0);
    uv_loop_init(&loop);
    loop.data = &op;
    catch_signals(&loop, signals);
    if (pp_operator_start(&op, &loop, config, &err) < 0) {
        pp_err(NULL, "starting: %s", err.message);
        op.failed = true;
        pp_operator_stop(&op);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < 2; i++) {
        if (!uv_is_closing((uv_handle_t *)&signals[i]))
            uv_close((uv_handle_t *)&signals[i], NULL);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    pp_operator_done(&op);
    uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop) != 0)
        pp_warn(NULL, "some handles were still open at the end");
    return op.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = argument_options,
        .parser = parse_argument,
        .doc = "The PrecisionProbe operator: per-layer GPU metrics of PyTorch trainings.",
    };
    arguments args = {.config = "/etc/precisionprobe/config.yaml"};
    pp_memory_configure();
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    if (args.help_config)
        return pp_config_print_help(stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;

    pp_config config;
    pp_error err = {0};
    if (pp_config_load(args.config, &config, &err) < 0) {
        pp_err(err.field[0] ? err.field : NULL, "%s: %s", args.config, err.message);
        return EXIT_FAILURE;
    }
    int rc = EXIT_SUCCESS;
    if (!args.check_config) {
        pp_log_level level = PP_LOG_INFO;
        (void)pp_log_level_from_name(config.log.level, &level);
        pp_log_set_level(level);
        curl_global_init(CURL_GLOBAL_DEFAULT);
        rc = run(&config);
        curl_global_cleanup();
    }
    pp_config_done(&config);
    return rc;
}
