/* Any bytes as a model: either they are refused with a message, or two tokens can be generated. */
#ifndef TRY_MODEL_H
#define TRY_MODEL_H

#include <stdbool.h>
#include <stddef.h>

/* data: aligned to 8. True when the model opened. Aborts with a message on a refusal without words, a leak, memory
 * out of proportion to the file, or an engine that does not end. */
bool try_model(const void *data, size_t n_bytes);

#endif
