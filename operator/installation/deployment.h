/* What concerns the operator itself, told to whoever describes its Deployment. */
#ifndef PP_OPERATOR_INSTALLATION_DEPLOYMENT_H
#define PP_OPERATOR_INSTALLATION_DEPLOYMENT_H

typedef struct pp_operator pp_operator;

/**
 * A warning Event on the Deployment; nothing where the operator knows of none. `reason` and
 * `action` as pp_kube_event has them.
 */
void pp_deployment_event(pp_operator *op, const char *reason, const char *action, const char *text);

#endif
