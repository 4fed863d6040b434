/* Fuzz target of the whole way in: any bytes either are refused as a model with a message, or open and generate. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "model/try_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes ? n_bytes : 1); /* aligned, and an exact block for the sanitizer */
    if (!copy)
        abort();
    if (n_bytes)
        memcpy(copy, data, n_bytes);
    try_model(copy, n_bytes);
    free(copy);
    return 0;
}
