/* Reads everything that an open GGUF file offers, the way a careless caller would: every key,
 * value, string, element and tensor byte, through every accessor. What must hold of any file that
 * opens is checked (abort when it does not). Returns a sum over the bytes, so that no read can be
 * optimised away. */
#ifndef GGUF_WALK_H
#define GGUF_WALK_H

#include "format/gguf.h"

uint64_t gguf_walk(const struct sn_gguf *g);

#endif
