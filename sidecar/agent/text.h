/* What a user's process says of itself, made fit for the wire. */
#ifndef PP_AGENT_TEXT_H
#define PP_AGENT_TEXT_H

/** Replaces control characters, and where it is no UTF-8 all that is not ASCII, by '?'. */
void pp_text_clean(char *text);

#endif
