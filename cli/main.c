/* precisionprobe: profiles a training on one machine, without a cluster. */
#include "cli/import.h"
#include "cli/options.h"
#include "cli/results.h"
#include "cli/run.h"
#include "cli/trace.h"
#include "common/cleanup.h"
#include "common/log.h"

#include <argp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From the program's folder; as installed, and in a build folder. */
static const char *const hooks[] = {"../share/precisionprobe/hook/python",
                                    "../sidecar/hook/python"};

static const char *find_hook(void)
{
    static char path[PATH_MAX];
    char program[PATH_MAX];
    const char *told = getenv("PRECISIONPROBE_HOOK");
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = NULL;
    if (told && *told)
        return told;
    if (n > 0) {
        program[n] = '\0';
        slash = strrchr(program, '/');
    }
    if (!slash)
        return NULL;
    *slash = '\0';
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
        char file[PATH_MAX];
        (void)snprintf(file, sizeof file, "%.2000s/%s/sitecustomize.py", program, hooks[i]);
        if (access(file, R_OK) != 0)
            continue;
        (void)snprintf(path, sizeof path, "%.2000s/%s", program, hooks[i]);
        return path;
    }
    return NULL;
}

static int complain(const pp_error *err)
{
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

static int report(int argc, char **argv)
{
    pp_error err = {0};
    PP_CLEANUP_JSON json_t *results = NULL;
    if (argc != 2) {
        (void)fputs("usage: precisionprobe report FOLDER\n", stderr);
        return EXIT_FAILURE;
    }
    if (pp_results_read(argv[1], &results, &err) < 0)
        return complain(&err);
    pp_results_print(results, stdout);
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

static int trace(int argc, char **argv)
{
    pp_error err = {0};
    if (argc != 2) {
        (void)fputs("usage: precisionprobe trace FOLDER\n", stderr);
        return EXIT_FAILURE;
    }
    return pp_trace(argv[1], stdout, &err) < 0 ? complain(&err) : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    pp_log_set_level(PP_LOG_ERROR);
    argp_err_exit_status = EXIT_FAILURE;
    if (argc > 1 && strcmp(argv[1], "run") == 0)
        return run(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "report") == 0)
        return report(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "import") == 0)
        return import(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "trace") == 0)
        return trace(argc - 1, argv + 1);
    bool asked = argc > 1 && strcmp(argv[1], "--help") == 0;
    (void)fputs("usage: precisionprobe run [OPTION...] -- COMMAND [ARGUMENT...]\n"
                "       precisionprobe report FOLDER\n"
                "       precisionprobe import [OPTION...] FOLDER\n"
                "       precisionprobe trace FOLDER > trace.json\n",
                asked ? stdout : stderr);
    return asked ? EXIT_SUCCESS : EXIT_FAILURE;
}
