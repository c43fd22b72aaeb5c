/* Numbers as texts that are read back as the same number. */
#ifndef PP_COMMON_NUMBER_H
#define PP_COMMON_NUMBER_H

/** Bytes of a number's text, the NUL among them. */
enum { PP_NUMBER_TEXT = 40 };

/** With as few digits as are read back as the same number, 15 at least where it has them; "" where
 * it is not finite. Returns `out`. */
const char *pp_number_text(double value, char out[PP_NUMBER_TEXT]);

#endif
