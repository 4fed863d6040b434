/* Names in this folder. Its files are compiled twice: for the baseline, where fmaf is the C
 * library's (correctly rounded by definition), and with -mfma -DSN_SCALAR_FMA=1, where it is one
 * instruction. Every function with external linkage is called SCALAR(sn_...); helpers are static.
 */
#ifndef SN_SCALAR_H
#define SN_SCALAR_H

#include <math.h>

#include "kernel/slots.h"

#ifdef SN_SCALAR_FMA
#define SCALAR(name) name##_scalar_fma
#else
#define SCALAR(name) name##_scalar
#endif

#endif
