/* Student's t: how far a value is from what it is held against, where its standard error is itself
 * an estimate. */
#ifndef PP_COMMON_STUDENT_H
#define PP_COMMON_STUDENT_H

/** How likely a value as far from 0 as t is by chance, on either side: with so many degrees of
 * freedom, by the normal distribution where they are infinite or NaN. */
double pp_student_p(double t, double freedom);

/** Degrees of freedom of the sum of two squared standard errors, by Welch and Satterthwaite
 * (Welch: Biometrika 34, 1947, 28-35). NaN or infinite: the error is known exactly. */
double pp_student_freedom(double error, double freedom, double other_error, double other_freedom);

#endif
