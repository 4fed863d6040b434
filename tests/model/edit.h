/* A tiny model with something changed: a key replaced, a tensor left out, misshaped or of another type. */
#ifndef MODEL_EDIT_H
#define MODEL_EDIT_H

#include "support/tiny_model.h"

struct edit {
    const char *drop;                  /* a key or a tensor that is left out; NULL = none */
    void (*add)(struct gguf_writer *); /* writes further keys or tensors; NULL = none */
    const char *tensor;                /* described anew, its data all zero; NULL = none */
    sennit_type type;
    uint32_t n_dims;
    uint64_t dims[4]; /* those from n_dims on must be 1 */
};

/* The smallest model that the graph can run, in F16: 11 KB. */
struct tiny_spec smallest_spec(void);

/* The file of `spec` with the change; the caller frees *out. Aborts when the change finds nothing to change. */
void edited_model(const struct tiny_spec *spec, const struct edit *edit, struct gguf_bytes *out);

/* An allocator that counts, for bounds and leaks. One thread at a time. */
struct counter {
    size_t now, peak;
};
struct sennit_allocator counting(struct counter *c);

#endif
