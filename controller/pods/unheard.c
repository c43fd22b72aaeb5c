#include "controller/pods/unheard.h"

#include "common/json.h"
#include "common/text.h"
#include "common/time.h"
#include "controller/injection/inject.h"

#include <stdio.h>
#include <string.h>

/* ---- what the Pod says ---- */

static const char *name_of(const json_t *item)
{
    const char *name = pp_json_get_string(item, "name", NULL);
    return name ? name : "";
}

/* One that fails again and again runs as far as can be: it is not heard either. */
static bool agent_runs(const json_t *pod)
{
    const json_t *status =
        pp_json_named(pp_json_get(pod, "status", "initContainerStatuses", NULL), PP_INJECT_AGENT);
    if (!status)
        status =
            pp_json_named(pp_json_get(pod, "status", "containerStatuses", NULL), PP_INJECT_AGENT);
    return pp_json_get(status, "state", "running", NULL) ||
           (pp_json_get(status, "state", "waiting", NULL) &&
            pp_json_get(status, "lastState", "terminated", NULL));
}

/* Whether a list of names, with commas between them, has this one. */
static bool listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    while (list && *list) {
        const size_t length = strcspn(list, ",");
        if (length == n && strncmp(list, name, n) == 0)
            return true;
        list += length + (list[length] == ',');
    }
    return false;
}

static void take_program(const json_t *pod, pp_unheard_pod *ret)
{
    const json_t *container =
        pp_json_named(pp_json_get(pod, "spec", "containers", NULL), ret->container);
    const char *program =
        json_string_value(json_array_get(json_object_get(container, "command"), 0));
    (void)snprintf(ret->program, sizeof ret->program, "%s",
                   program ? pp_text_file_name(program) : "");
}

static void take_trainer(const json_t *pod, pp_unheard_pod *ret)
{
    const char *names =
        pp_json_get_string(pod, "metadata", "annotations", PP_ANNOTATION_CONTAINERS, NULL);
    const json_t *list = pp_json_get(pod, "status", "containerStatuses", NULL);
    for (size_t i = 0; i < json_array_size(list) && !ret->trainer_runs; i++) {
        const json_t *status = json_array_get(list, i);
        const json_t *running = pp_json_get(status, "state", "running", NULL);
        const char *started = pp_json_get_string(running, "startedAt", NULL);
        if (!running || !listed(names, name_of(status)))
            continue;
        ret->trainer_runs = true;
        if (started)
            (void)pp_time_parse(started, &ret->trainer_start, NULL);
        (void)snprintf(ret->container, sizeof ret->container, "%s", name_of(status));
        take_program(pod, ret);
    }
}

bool pp_unheard_read(const json_t *pod, pp_unheard_pod *ret)
{
    *ret = (pp_unheard_pod){0};
    if (!pp_inject_carried(pod))
        return false;
    ret->agent_runs = agent_runs(pod);
    take_trainer(pod, ret);
    return ret->agent_runs || ret->trainer_runs;
}

/* ---- what keeps it ---- */

static bool has_libc(const pp_wire_hook *hook, const char *libc)
{
    return strcmp(hook->libc, libc) == 0;
}

/* On musl a Python loads what is Python of the hook, and can never load the rest. */
static bool is_loaded(const pp_wire_hook *hook)
{
    return hook->torch || (hook->loaded && !has_libc(hook, "musl"));
}

pp_unheard_cause pp_unheard_look(const pp_unheard *seen, int64_t *ret_at)
{
    *ret_at = 0;
    if (!seen->open_since)
        return PP_UNHEARD_NONE;
    if (seen->agent_since && !seen->was_connected && !seen->shut_out) {
        *ret_at = PP_UNHEARD_NS +
                  (seen->agent_since > seen->open_since ? seen->agent_since : seen->open_since);
        return PP_UNHEARD_AGENT;
    }
    if (seen->connected && seen->told && seen->hook.refusal[0]) {
        *ret_at = seen->open_since; /* it does not pass by itself */
        return PP_UNHEARD_REFUSED;
    }
    if (seen->trainer_since && seen->connected && seen->told && !is_loaded(&seen->hook)) {
        *ret_at = PP_UNHEARD_NS + seen->trainer_since;
        return PP_UNHEARD_HOOK;
    }
    return PP_UNHEARD_NONE;
}

/* ---- saying it ---- */

static bool is_shell(const char *program)
{
    static const char *const shells[] = {"sh",  "bash", "dash", "ash", "zsh",
                                         "ksh", "fish", "csh",  "tcsh"};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(program, shells[i]) == 0)
            return true;
    }
    return false;
}

/* The name alone: what is behind it may hold secrets. */
static void describe_command(const pp_unheard_pod *pod, char *out, size_t size)
{
    if (!pod->program[0])
        (void)snprintf(out, size, "its command is the image's own");
    else
        (void)snprintf(out, size, "its command is %s%s", pod->program,
                       is_shell(pod->program) ? ", a shell" : "");
}

static void tell_hook(const pp_unheard_pod *pod, const pp_wire_hook *hook,
                      pp_session_pod_trouble *ret)
{
    char command[128];
    describe_command(pod, command, sizeof command);
    if (has_libc(hook, "musl"))
        (void)snprintf(ret->text, sizeof ret->text,
                       "the hook cannot be loaded in container %s, since its image has musl in "
                       "place of glibc; use an image with glibc",
                       pod->container);
    else if (has_libc(hook, "none"))
        (void)snprintf(ret->text, sizeof ret->text,
                       "no Python runs with the hook in container %s, whose image has no libc: it "
                       "runs a static program, which is not profiled; take the pod out of "
                       "spec.selector, or train in a Python of an image with glibc",
                       pod->container);
    else
        (void)snprintf(
            ret->text, sizeof ret->text,
            "for 45 s no Python has run with the hook in container %s; %s. Where it is still "
            "to start the training, wait. Else see that it starts Python 3.8 or later, without "
            "-I, -E and -S, and leaves " PP_INJECT_PYTHON_PATH " in PYTHONPATH",
            pod->container, command);
}

void pp_unheard_tell(pp_unheard_cause cause, const pp_unheard_pod *pod, const pp_wire_hook *hook,
                     const char *endpoint, pp_session_pod_trouble *ret)
{
    *ret = (pp_session_pod_trouble){.of_pod = true};
    switch (cause) {
    case PP_UNHEARD_NONE:
        return;
    case PP_UNHEARD_AGENT:
        (void)snprintf(ret->reason, sizeof ret->reason, "AgentNotConnected");
        (void)snprintf(ret->text, sizeof ret->text,
                       "its agent has run for 45 s and has not connected to the operator; the "
                       "log of container " PP_INJECT_AGENT " says why. See that the pod reaches "
                       "%.120s: NetworkPolicies, DNS in the pod. Where its certificate is refused, "
                       "the operator was installed anew: create the pod anew",
                       endpoint);
        return;
    case PP_UNHEARD_REFUSED:
        (void)snprintf(ret->reason, sizeof ret->reason, "ProcessRefused");
        (void)snprintf(ret->text, sizeof ret->text,
                       "its training is not profiled: %s; docs/frameworks.md lists what is",
                       hook->refusal);
        return;
    case PP_UNHEARD_HOOK:
        (void)snprintf(ret->reason, sizeof ret->reason, "HookNotLoaded");
        tell_hook(pod, hook, ret);
        return;
    }
}
