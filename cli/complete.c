#include "cli/complete.h"

#include "cli/formats/formats.h"
#include "common/metric.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

static const char *const formats[] = {"table", "csv", "json", "html", "parquet", NULL};
static const char *const methods[] = {"Auto", "Regression", "Sampling", "Replay", "Job", NULL};
static const char *const phases[] = {"Forward", "Backward", "Optimizer", NULL};
static const char *const columns[] = {"layer",
                                      "type",
                                      "phase",
                                      "bound",
                                      "time",
                                      "share",
                                      "ms_per_step",
                                      "least_ms_per_step",
                                      "busy_ms_per_step",
                                      "idle_share",
                                      "calls",
                                      "parameters",
                                      "memory_peak_bytes",
                                      "memory_live_bytes",
                                      NULL};

typedef struct asking {
    const char *before; /* of each that is written: "--format=" */
    const char *begin;  /* of what is wanted */
    FILE *to;
} asking;

static void offer(const asking *a, const char *word)
{
    if (strncmp(word, a->begin, strlen(a->begin)) == 0)
        (void)fprintf(a->to, "%s%s\n", a->before, word);
}

static void offer_all(const asking *a, const char *const *words)
{
    for (; *words; words++)
        offer(a, *words);
}

static void offer_metrics(const asking *a, bool as_columns)
{
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const pp_metric_info *info = pp_metric_get((pp_metric)m);
        offer(a, as_columns ? info->column : info->spec_name);
    }
}

/* "koordinator, lucid, ..." */
static void offer_schedulers(const asking *a)
{
    char *names = strdup(pp_format_names()), *rest = names;
    for (char *one; rest && (one = strsep(&rest, ","));)
        offer(a, one + strspn(one, " "));
    free(names);
}

/* Of an option by its argument's name; nothing where it is a file or anything at all. */
static void offer_values(const asking *a, const struct argp_option *option)
{
    if (strcmp(option->arg, "FORMAT") == 0) {
        offer_all(a, formats);
        offer_schedulers(a);
    } else if (strcmp(option->arg, "METHOD") == 0) {
        offer_all(a, methods);
    } else if (strcmp(option->arg, "PHASE") == 0) {
        offer_all(a, phases);
    } else if (strcmp(option->arg, "METRIC") == 0) {
        offer_metrics(a, false);
    } else if (strcmp(option->arg, "COLUMN") == 0) {
        offer_all(a, columns);
        offer_metrics(a, true);
    }
}

/* ---- options ---- */

static bool is_end(const struct argp_option *o)
{
    return !o->name && !o->key && !o->doc;
}

static void offer_options(const asking *a, const pp_complete_verb *verb)
{
    char text[80];
    for (size_t t = 0; t < PP_COMPLETE_TABLES; t++) {
        for (const struct argp_option *o = verb->tables[t]; o && !is_end(o); o++) {
            if (!o->name || (o->flags & OPTION_HIDDEN))
                continue;
            (void)snprintf(text, sizeof text, "--%s%s", o->name,
                           o->arg && !(o->flags & OPTION_ARG_OPTIONAL) ? "=" : "");
            offer(a, text);
        }
    }
    offer(a, "--help");
}

/* The option that a word is, "--format", "--format=x" or "-d"; NULL: none with an argument. */
static const struct argp_option *option_of(const pp_complete_verb *verb, const char *word)
{
    const size_t length = strcspn(word, "=");
    for (size_t t = 0; t < PP_COMPLETE_TABLES; t++) {
        for (const struct argp_option *o = verb->tables[t]; o && !is_end(o); o++) {
            const bool is_long = o->name && strncmp(word, "--", 2) == 0 &&
                                 strlen(o->name) == length - 2 &&
                                 strncmp(word + 2, o->name, length - 2) == 0;
            const bool is_short = word[0] == '-' && word[1] == o->key && !word[2];
            if (o->arg && (is_long || is_short))
                return o;
        }
    }
    return NULL;
}

/* ---- words ---- */

static const pp_complete_verb *verb_of(const pp_complete_verb *verbs, const char *name)
{
    for (; verbs->name; verbs++)
        if (strcmp(verbs->name, name) == 0)
            return verbs;
    return NULL;
}

static void offer_names(const asking *a, const pp_complete_verb *verb)
{
    char line[512], *text = NULL;
    size_t length = 0;
    FILE *all = open_memstream(&text, &length);
    if (!all)
        return;
    verb->names(all);
    (void)fclose(all);
    for (char *at = text; at && *at; at += strcspn(at, "\n") + 1) {
        (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        offer(a, line);
        if (!at[strcspn(at, "\n")])
            break;
    }
    free(text);
}

static void offer_word(const pp_complete_verb *verb, const char *previous, const char *word,
                       FILE *to)
{
    char before[80] = "";
    const char *equals = strchr(word, '=');
    const struct argp_option *waits = option_of(verb, previous);
    asking a = {before, word, to};
    if (waits && !strchr(previous, '=') && !(waits->flags & OPTION_ARG_OPTIONAL)) {
        offer_values(&a, waits);
    } else if (word[0] == '-' && equals) {
        const struct argp_option *option = option_of(verb, word);
        (void)snprintf(before, sizeof before, "%.*s", (int)(equals + 1 - word), word);
        a.begin = equals + 1;
        if (option)
            offer_values(&a, option);
    } else if (word[0] == '-') {
        offer_options(&a, verb);
    } else if (verb->names) {
        offer_names(&a, verb);
    }
}

void pp_complete(const pp_complete_verb *verbs, int n_words, char **words, FILE *to)
{
    const char *last = n_words > 0 ? words[n_words - 1] : "";
    if (n_words <= 1) {
        const asking a = {"", last, to};
        for (; verbs->name; verbs++)
            offer(&a, verbs->name);
        return;
    }
    const pp_complete_verb *verb = verb_of(verbs, words[0]);
    for (int i = 1; i < n_words - 1; i++)
        if (strcmp(words[i], "--") == 0)
            return; /* somebody else's command */
    if (verb)
        offer_word(verb, n_words > 2 ? words[n_words - 2] : "", last, to);
}

/* ---- shells ---- */

/* bash splits words at "=" and completes what stands behind the last one: what is offered loses the
 * same. Nothing offered: files. */
static const char bash[] =
    "# bash completion of precisionprobe: precisionprobe completion bash\n"
    "_precisionprobe() {\n"
    "    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT} cut=\n"
    "    local -a words\n"
    "    IFS=$' \\t\\n' read -ra words <<<\"$line\"\n"
    "    [[ $line == *[[:space:]] ]] && words+=('')\n"
    "    COMPREPLY=($(\"${words[0]}\" complete \"${words[@]:1}\" 2>/dev/null))\n"
    "    [[ ${words[-1]} == *=* && $COMP_WORDBREAKS == *=* ]] && cut=${words[-1]%%=*}=\n"
    "    COMPREPLY=(\"${COMPREPLY[@]#\"$cut\"}\")\n"
    "    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
    "    [[ ${#COMPREPLY[@]} -gt 0 && -n ${COMPREPLY[0]} ]] || COMPREPLY=()\n"
    "    return 0\n"
    "}\n"
    "complete -o default -F _precisionprobe precisionprobe kubectl-precisionprobe\n";

static const char zsh[] =
    "#compdef precisionprobe kubectl-precisionprobe\n"
    "# zsh completion of precisionprobe: precisionprobe completion zsh\n"
    "_precisionprobe() {\n"
    "    local -a offered plain open\n"
    "    offered=(${(f)\"$(\"${words[1]}\" complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)\"})\n"
    "    plain=(${offered:#*=}) open=(${(M)offered:#*=})\n"
    "    if (( ! ${#offered} )); then\n"
    "        _files\n"
    "        return\n"
    "    fi\n"
    "    (( ${#plain} )) && compadd -- $plain\n"
    "    (( ${#open} )) && compadd -S '' -- $open\n"
    "    return 0\n"
    "}\n"
    "compdef _precisionprobe precisionprobe kubectl-precisionprobe\n";

int pp_complete_script(const char *shell, FILE *to)
{
    if (strcmp(shell, "bash") != 0 && strcmp(shell, "zsh") != 0)
        return -1;
    (void)fputs(strcmp(shell, "bash") == 0 ? bash : zsh, to);
    return 0;
}
