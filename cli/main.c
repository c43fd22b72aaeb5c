/* precisionprobe: profiles a training on one machine, without a cluster. */
#include "cli/complete.h"
#include "cli/figures.h"
#include "cli/import.h"
#include "cli/kubectl/options.h"
#include "cli/plugin.h"
#include "cli/report.h"
#include "cli/run/options.h"
#include "cli/run/run.h"
#include "cli/terminal/names.h"
#include "cli/terminal/progress.h"
#include "cli/top.h"
#include "cli/trace.h"
#include "common/cleanup.h"
#include "common/log.h"
#include "common/text.h"
#include "common/wire.h"

#include <argp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From the program's folder; as installed, and in a build folder. */
static const char *const hooks[] = {"../share/precisionprobe/hook/python", "../sidecar/hook/python",
                                    NULL};
static const char *const parquets[] = {"../share/precisionprobe/formats/parquet.py", "parquet.py",
                                       NULL};

/* The first of these paths below which there is `file`, or that is one where that is "". Static;
 * NULL: none. */
static const char *find_beside(const char *const *paths, const char *file)
{
    static char path[PATH_MAX];
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash)
        return NULL;
    *slash = '\0';
    for (; *paths; paths++) {
        char whole[PATH_MAX];
        (void)snprintf(path, sizeof path, "%.2000s/%s", program, *paths);
        (void)snprintf(whole, sizeof whole, "%.3000s%s", path, file);
        if (access(whole, R_OK) == 0)
            return path;
    }
    return NULL;
}

static const char *find_hook(void)
{
    const char *told = getenv("PRECISIONPROBE_HOOK");
    return told && *told ? told : find_beside(hooks, "/sitecustomize.py");
}

/* Names of files and what servers say come from anybody. */
static int complain(pp_error *err)
{
    pp_text_tame(err->field);
    pp_text_tame(err->message);
    pp_progress_clear();
    (void)fprintf(stderr, "precisionprobe: %s%s%s\n", err->field, *err->field ? " " : "",
                  err->message);
    return EXIT_FAILURE;
}

static int run(int argc, char **argv)
{
    static char name[] = "precisionprobe run";
    pp_error err = {0};
    pp_run_options options;
    argv[0] = name;
    if (pp_run_options_parse(argc, argv, &options, &err) < 0) {
        pp_run_options_free(&options);
        return complain(&err);
    }
    if (!options.hook)
        options.hook = find_hook();
    if (!options.hook)
        (void)pp_error_field(&err, "--hook", "is needed: the hook is not where it is installed");
    int rc = options.hook ? pp_run(&options, &err) : -1;
    pp_run_options_free(&options);
    return rc < 0 ? complain(&err) : rc;
}

static error_t take_folder(int key, char *text, struct argp_state *state)
{
    const char **folder = state->input;
    if (key == ARGP_KEY_NO_ARGS)
        argp_error(state, "which folder?");
    if (key != ARGP_KEY_ARG || *folder)
        return ARGP_ERR_UNKNOWN;
    *folder = text;
    return 0;
}

/* The one argument of verbs that have options of their own beside it. */
static const struct argp folder = {NULL, take_folder, "FOLDER", NULL, NULL, NULL, NULL};
static const struct argp_child folder_child[] = {{&folder, 0, NULL, 0}, {0}};

enum { KEY_RANK = 256 };

static int report(int argc, char **argv)
{
    static char name[] = "precisionprobe report";
    pp_error err = {0};
    pp_report_options options;
    argv[0] = name;
    int rc = pp_report_options_parse(argc, argv, NULL, NULL, &options, &err);
    if (rc == 0)
        rc = pp_report(&options, find_beside(parquets, ""), &err);
    pp_report_options_done(&options);
    return rc < 0 ? complain(&err) : EXIT_SUCCESS;
}

static int figures(int argc, char **argv)
{
    static char name[] = "precisionprobe figures";
    pp_error err = {0};
    pp_figures_options options;
    argv[0] = name;
    if (pp_figures_options_parse(argc, argv, &options, &err) < 0 || pp_figures(&options, &err) < 0)
        return complain(&err);
    return EXIT_SUCCESS;
}

static int import(int argc, char **argv)
{
    static char name[] = "precisionprobe import";
    pp_error err = {0};
    pp_import_options options;
    bool inserted = false;
    char uid[37];
    argv[0] = name;
    if (pp_import_options_parse(argc, argv, &options, &err) < 0 ||
        pp_import(&options, &inserted, uid, &err) < 0)
        return complain(&err);
    (void)printf("%s %s\n", inserted ? "imported as session" : "is there already: session", uid);
    return EXIT_SUCCESS;
}

typedef struct trace_options {
    const char *folder;
    int rank;
    pp_error *err;
} trace_options;

static error_t take_trace(int key, char *text, struct argp_state *state)
{
    trace_options *options = state->input;
    char *end = NULL;
    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = &options->folder;
        return 0;
    }
    if (key != KEY_RANK)
        return ARGP_ERR_UNKNOWN;
    const long rank = strtol(text, &end, 10);
    if (end == text || *end || rank < 0 || rank > PP_WIRE_MAX_PROCESS) {
        (void)pp_error_field(options->err, "--rank", "must be a number from 0 to %d",
                             PP_WIRE_MAX_PROCESS);
        return EINVAL;
    }
    options->rank = (int)rank;
    return 0;
}

static const struct argp_option trace_known[] = {
    {"rank", KEY_RANK, "N", 0,
     "Write that rank's steps only, and which rank it is: for what reads a file of each, as "
     "Holistic Trace Analysis does",
     0},
    {0}};

static int trace(int argc, char **argv)
{
    static char name[] = "precisionprobe trace";
    static const struct argp argp = {trace_known,
                                     take_trace,
                                     NULL,
                                     "Writes the steps that a run kept in full to standard output, "
                                     "as Chrome trace events.",
                                     folder_child,
                                     NULL,
                                     NULL};
    pp_error err = {0};
    trace_options options = {.rank = PP_TRACE_ALL, .err = &err};
    argv[0] = name;
    if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0 ||
        pp_trace(options.folder, options.rank, stdout, &err) < 0)
        return complain(&err);
    return EXIT_SUCCESS;
}

static int top(int argc, char **argv)
{
    static char name[] = "precisionprobe top";
    pp_error err = {0};
    pp_top_options options;
    argv[0] = name;
    int rc = pp_top_options_parse(argc, argv, NULL, NULL, &options, &err);
    if (rc == 0)
        rc = pp_top(&options, pp_top_read_folder, (char *)(uintptr_t)options.what, &err);
    return rc < 0 ? complain(&err) : rc;
}

static int plugin(int argc, char **argv)
{
    pp_error err = {0};
    PP_CLEANUP_FREE char *advice = NULL;
    const int rc = pp_plugin(argc - 1, argv + 1, find_beside(parquets, ""), &advice, &err);
    if (rc >= 0)
        return rc;
    (void)complain(&err);
    pp_lines_print(stderr, advice ? advice : "");
    return EXIT_FAILURE;
}

/* ---- completion ---- */

/* Of a plugin's verb: its own options, those of `more`, and those of all. */
static pp_complete_verb plugin_verb(const char *name, const struct argp_option *more,
                                    void (*names)(FILE *))
{
    return (pp_complete_verb){
        name, {pp_plugin_options_known(name), more, pp_kubectl_options_argp()->options}, names};
}

static void complete_plugin(int n, char **words)
{
    const pp_complete_verb verbs[] = {
        plugin_verb("start", NULL, pp_plugin_list_owners),
        plugin_verb("status", NULL, pp_plugin_list_sessions),
        plugin_verb("report", pp_report_options_known(), pp_plugin_list_sessions),
        plugin_verb("top", pp_top_options_known(), pp_plugin_list_sessions),
        plugin_verb("pattern", NULL, pp_plugin_list_patterns),
        plugin_verb("open", NULL, pp_plugin_list_sessions),
        plugin_verb("doctor", NULL, pp_plugin_list_sessions),
        {0}};
    pp_complete(verbs, n, words, stdout);
}

static void list_shells(FILE *to)
{
    (void)fputs("bash\nzsh\n", to);
}

/* The words behind `complete`, the last of which is being typed. */
static int complete(int argc, char **argv)
{
    const pp_complete_verb verbs[] = {{"run", {pp_run_options_known()}, NULL},
                                      {"report", {pp_report_options_known()}, NULL},
                                      {"figures", {pp_figures_options_known()}, NULL},
                                      {"top", {pp_top_options_known()}, NULL},
                                      {"import", {pp_import_options_known()}, NULL},
                                      {"trace", {trace_known}, NULL},
                                      {"kubectl", {NULL}, NULL},
                                      {"completion", {NULL}, list_shells},
                                      {0}};
    if (argc > 2 && strcmp(argv[1], "kubectl") == 0)
        complete_plugin(argc - 2, argv + 2);
    else
        pp_complete(verbs, argc - 1, argv + 1, stdout);
    return EXIT_SUCCESS;
}

static int completion(int argc, char **argv)
{
    if (argc == 2 && pp_complete_script(argv[1], stdout) == 0)
        return EXIT_SUCCESS;
    (void)fputs("usage: precisionprobe completion bash|zsh\n", stderr);
    return EXIT_FAILURE;
}

/* By the name that kubectl looks for its plugins under. */
static bool is_called(const char *program, const char *name)
{
    return strcmp(pp_text_file_name(program), name) == 0;
}

/* kubectl asks this for what may follow, and takes a directive behind it: no files (4). */
static int complete_for_kubectl(int argc, char **argv)
{
    complete_plugin(argc - 1, argv + 1);
    return printf(":4\n") < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int help(FILE *to, int status)
{
    (void)fputs("usage: precisionprobe run [OPTION...] -- COMMAND [ARGUMENT...]\n"
                "       precisionprobe report [OPTION...] FILE...\n"
                "       precisionprobe figures [OPTION...] FILE...\n"
                "       precisionprobe top [OPTION...] FOLDER\n"
                "       precisionprobe import [OPTION...] FOLDER\n"
                "       precisionprobe trace [OPTION...] FOLDER > trace.json\n"
                "       precisionprobe kubectl COMMAND ...\n"
                "       precisionprobe completion bash|zsh\n"
                "       precisionprobe --version\n"
                "Each has a help of its own, with its options: run --help, import --help, ...\n",
                to);
    return status;
}

static int refuse(const char *verb)
{
    static const char *const of_plugin[] = {"doctor", "open", "pattern", "start", "status"};
    for (size_t i = 0; i < sizeof of_plugin / sizeof *of_plugin; i++) {
        if (strcmp(verb, of_plugin[i]) != 0)
            continue;
        (void)fprintf(stderr, "precisionprobe: %s is of a cluster: kubectl precisionprobe %s\n",
                      verb, verb);
        return EXIT_FAILURE;
    }
    (void)fprintf(stderr, "precisionprobe: unknown command %s\n", verb);
    return help(stderr, EXIT_FAILURE);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*call)(int argc, char **argv);
    } verbs[] = {{"run", run},        {"report", report},     {"figures", figures},
                 {"import", import},  {"trace", trace},       {"top", top},
                 {"kubectl", plugin}, {"complete", complete}, {"completion", completion}};
    pp_log_set_level(PP_LOG_ERROR);
    argp_err_exit_status = EXIT_FAILURE;
    if (is_called(argv[0], "kubectl_complete-precisionprobe"))
        return complete_for_kubectl(argc, argv);
    if (is_called(argv[0], "kubectl-precisionprobe") && argc > 1 &&
        strcmp(argv[1], "complete") == 0) {
        complete_plugin(argc - 2, argv + 2);
        return EXIT_SUCCESS;
    }
    if (is_called(argv[0], "kubectl-precisionprobe"))
        return plugin(argc, argv);
    if (argc < 2)
        return help(stderr, EXIT_FAILURE);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].call(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return help(stdout, EXIT_SUCCESS);
    if (strcmp(argv[1], "--version") == 0)
        return printf("precisionprobe " PP_VERSION "\n") < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    return refuse(argv[1]);
}
