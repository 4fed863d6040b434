/* The simplest family that an outsider can write, through the public header alone: f32 as it comes, so that all
 * results are those of "plain" in f32. Rows that load_chunk was not asked for come as NaN. d_k must be a multiple
 * of 4. */
#ifndef SUPPORT_RAW_FAMILY_H
#define SUPPORT_RAW_FAMILY_H

#include "sennit/family.h"

extern const struct sennit_family raw_family; /* "raw", signature "as it comes" */

#endif
