/* Fuzz target of the GGUF reader: any bytes either are refused, or can be read to the last one. */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "format/gguf.h"
#include "support/gguf_walk.h"

enum { SLACK_BYTES = 64 << 10 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct sn_heap heap;
    struct sn_gguf *g = NULL;
    struct sennit_error err = {.message = ""};
    uint8_t *copy =
        malloc(n_bytes ? n_bytes : 1); /* aligned, and an exact block for the sanitizer */
    if (!copy)
        abort();
    if (n_bytes)
        memcpy(copy, data, n_bytes);
    sn_heap_init(&heap, NULL);
    if (sn_gguf_open_memory(&g, &heap, copy, n_bytes, &err) == SENNIT_OK)
        gguf_walk(g);
    else if (err.message[0] == '\0')
        abort();
    sn_gguf_close(g);
    if (atomic_load(&heap.total) != 0 || atomic_load(&heap.peak) > 4 * n_bytes + SLACK_BYTES)
        abort();
    free(copy);
    return 0;
}
